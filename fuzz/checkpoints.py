"""Tiny checkpoints made hostile: configuration, tokenizer, template and weights."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from fuzz import damage, world

TEMPLATES = (
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{{ 'x' * 1000000000 }}",
    "{{ messages[0].content * 100000 }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ raise_exception('\x1b[31mno') }}",
    "{{ 1 / 0 }}",
    "{% if %}",
    "{{ undefined.name }}",
    "",
    "[INST] {{ messages[0].content }} [/INST]",
    "{% for m in messages %}{{ m.content }}\x1b[31m{% endfor %}",
)


def hostile(draw: st.DrawFn, kind: str, *, template: bool = False) -> dict[str, bytes]:
    """The files of a tiny model of a kind, one or two of them made wrong, or its template alone."""
    files = dict(world.model_files(kind))
    if template:
        _template(draw, files)
        return files
    act = draw(st.integers(0, 9))
    names = sorted(files)
    if act < 4:
        name = "config.json"
    elif act < 6:
        name = draw(st.sampled_from([name for name in names if name.endswith(".json")]))
    else:
        name = draw(st.sampled_from(names))
    if act == 9:
        _template(draw, files)
    elif draw(st.integers(0, 14)) == 0:
        del files[name]
    else:
        files[name] = damage.damage_file(draw, name, files[name])
    if draw(st.integers(0, 29)) == 0:
        index = {"weight_map": {"x": draw(st.sampled_from(("../../t.txt", "/etc/hostname", "", "model.safetensors")))}}  # fmt: skip  # noqa: E501
        files["model.safetensors.index.json"] = json.dumps(index).encode()
        files.pop("model.safetensors", None)
    return files


def _template(draw: st.DrawFn, files: dict[str, bytes]) -> None:
    if "tokenizer_config.json" in files:
        settings = json.loads(files["tokenizer_config.json"])
        settings["chat_template"] = draw(st.sampled_from(TEMPLATES))
        files["tokenizer_config.json"] = json.dumps(settings).encode()
