"""Adds to a wheel manual pages and completions, made of the options, and files of examples."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Writes what goes under `share`, and copies the samples: the repository has them once."""

    place: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files, unless the installation is an editable one."""
        if version == "editable":
            return
        sys.path[:0] = [self.root, str(Path(self.root, "docs"))]
        from reference import shared

        from attnviz.features.examples import FILES

        for name in FILES:
            inside = f"attnviz/features/examples/files/{name}"
            build_data["force_include"][str(Path(self.root, "sample_inputs", name))] = inside

        self.place = TemporaryDirectory()
        for path, text in shared().items():
            file = Path(self.place.name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(file)] = path

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if self.place:
            self.place.cleanup()
