"""A tiny causal model with a chat template, and chats; templates that treat messages oddly."""

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from tests.hugging_face import tiny_models

_PLAIN = (
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
TEMPLATES = {
    "plain": _PLAIN,
    "trims": _PLAIN.replace("m.content", "m.content | trim"),
    "shouts": _PLAIN.replace("m.content", "m.content | upper"),
    "merges the system prompt into the first turn": (
        "{% set start = '' %}{% if messages[0].role == 'system' %}"
        "{% set start = messages[0].content | trim + '\n\n' %}{% set messages = messages[1:] %}"
        "{% endif %}{% for m in messages %}<s>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ start if loop.first else '' }}{{ m.content | trim }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>model\n{% endif %}"
    ),
    "puts the system prompt before the last turn": (
        "{% if messages[0].role == 'system' %}{% set start = messages[0].content + '\n\n' %}"
        "{% set messages = messages[1:] %}{% else %}{% set start = '' %}{% endif %}"
        "{% for m in messages %}{% if m.role == 'user' %}[INST] "
        "{{ start if m == (messages | selectattr('role', 'equalto', 'user') | list)[-1] else '' }}"
        "{{ m.content }} [/INST]{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
    ),
    "invents a system prompt": (
        "{% if messages[0].role != 'system' %}<s>system\nYou are Someone, made by nobody. "
        "Today is the 26th of July.</s>\n{% endif %}" + _PLAIN
    ),
    "drops thinking": (
        "{% for m in messages %}{% set text = m.content %}"
        "{% if m.role == 'assistant' and not loop.last and '</think>' in text %}"
        "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
        "<s>{{ m.role }}\n{% if m.reasoning_content and loop.last %}<think>\n"
        "{{ m.reasoning_content }}\n</think>\n{% endif %}{{ text }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
    ),
    "prints tools as JSON": (
        "{% if tools %}<s>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}</s>\n"
        "{% endif %}"
        "{% for m in messages %}<s>{{ m.role }}\n"
        "{{ m.content | tojson if m.role == 'tool' else m.content }}"
        "{% for c in m.tool_calls or [] %}<call>"
        '{"name": {{ c.function.name | tojson }}, '
        '"parameters": {{ c.function.arguments | tojson }}}'
        "</call>{% endfor %}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
    ),
    "reads contents in parts": (
        "{% for m in messages %}<s>{{ m.role }}\n{% for part in m.content %}"
        "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
    ),
}
CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "  The red car is fast. Is the paper red?\n"},
    {"role": "assistant", "content": "The car is red. The paper is not. It was published."},
]


def rendering(name: str) -> Any:
    """What renders messages by a template of this name, in this process."""

    def render(turns: Any, tools: Any = None) -> str:
        more = {"add_generation_prompt": turns[-1]["role"] != "assistant"}
        return render_jinja_template([turns], tools, chat_template=TEMPLATES[name], **more)[0][0]

    return render


def chat_model(folder: Path, name: str = "plain") -> Path:
    """A random Llama of 3 layers × 4 heads, whose marks of turns are special tokens."""
    tiny_models.llama(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATES[name]
    tokenizer.save_pretrained(folder)
    return folder


def write_chat(file: Path, chat: Any) -> Path:
    file.write_text(json.dumps(chat))
    return file


def a_chat(folder: Path) -> tuple[Any, ...]:
    """A file of messages, and the model that reads it, as arguments of a command."""
    return write_chat(folder / "chat.json", CHAT), "--model", chat_model(folder / "model")
