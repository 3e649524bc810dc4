"""Render a text as a user's turn, or a conversation, by the model's chat template.

A template is a program: it runs in its own process, with limits on time and memory.
"""

import json
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any

from attnviz.core.errors import ModelError, first_line
from attnviz.models.hugging_face.load.devices import library_errors


def render_messages(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    name: str,
    owner: Any = None,
    tools: Any = None,
) -> str:
    """Messages as one text, by the template of the processor (`owner`) or tokenizer."""
    templates = (owner or tokenizer).chat_template
    if not templates:
        raise ModelError(f"'{name}' has no chat template: leave --chat out")
    with library_errors(f"the chat template of '{name}' fails"):
        template = templates["default"] if isinstance(templates, dict) else str(templates)
        marks = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    return _renderer(template, marks, name).render({"messages": [*messages], "tools": tools})


TEMPLATE_SECONDS, TEMPLATE_BYTES = 5, 1 << 30  # limits for one text; real ones take milliseconds
LONGEST_TURN = 1 << 20  # characters of a rendered turn


class TemplateProcess:
    """A process that renders texts with one chat template."""

    def __init__(self, template: str, marks: str, name: str) -> None:
        self.name, self.lock = name, Lock()
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
            f"from {__name__} import serve_template; serve_template(*sys.argv[2:])"
        )
        limits = str(TEMPLATE_SECONDS), str(TEMPLATE_BYTES)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, json.dumps(sys.path), *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, self.process)
        self._send({"template": template, "marks": json.loads(marks)})

    def render(self, conversation: Mapping[str, Any]) -> str:
        """The text that the model reads for a conversation."""
        with self.lock:
            self._send(conversation)
            assert self.process.stdout is not None
            answer = self.process.stdout.readline()
        if not answer.endswith(b"\n"):
            _renderer.cache_clear()
            raise ModelError(
                f"the chat template of '{self.name}' was stopped: it ran for more than "
                f"{TEMPLATE_SECONDS} seconds or took more than {TEMPLATE_BYTES >> 20} MiB"
            )
        document = json.loads(answer)
        if "error" in document:
            raise ModelError(f"the chat template of '{self.name}' fails: {document['error']}")
        return str(document["text"])

    def _send(self, document: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `render` reports the missing answer
            self.process.stdin.write(json.dumps(document).encode() + b"\n")
            self.process.stdin.flush()


_renderer = lru_cache(maxsize=4)(TemplateProcess)


def _end(process: Any) -> None:
    process.kill()
    process.communicate()


def serve_template(seconds: str, memory: str) -> None:
    """The loop of a `TemplateProcess`: render each line of stdin."""
    import psutil
    from transformers.utils.chat_template_utils import render_jinja_template

    settings = json.loads(sys.stdin.readline())
    most = psutil.Process().memory_info().vms + int(memory)
    for line in sys.stdin:
        _limit(int(seconds), most)
        try:
            read = json.loads(line)
            result: Any = render_jinja_template(
                [read["messages"]],
                tools=read["tools"],
                chat_template=settings["template"],
                add_generation_prompt=read["messages"][-1]["role"] != "assistant",
                **settings["marks"],
            )
            text = str(result[0][0])
            answer = {"text": text}
            if len(text) > LONGEST_TURN:
                answer = {"error": f"it makes {len(text):,} characters of this text"}
        except Exception as error:
            answer = {"error": first_line(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit(seconds: int, memory: int) -> None:
    """Limit this process to some seconds of CPU time and bytes of memory."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    spent = resource.getrusage(resource.RUSAGE_SELF)
    most = int(spent.ru_utime + spent.ru_stime) + 1 + seconds
    for kind, limit in ((resource.RLIMIT_CPU, most), (resource.RLIMIT_AS, memory)):
        hard = resource.getrlimit(kind)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (soft, hard))
