"""Where messages stand in the prompt, whatever a template does with them."""

import json

import pytest

from attnviz.core.errors import InputError
from attnviz.features.chat.places import names_of, read_prompt
from attnviz.runs.inputs import chats_in
from attnviz.storage.texts import holds_messages, read_conversations
from tests.features.chat.models import TEMPLATES, rendering

SYSTEM = {"role": "system", "content": " Be short. "}
USER = {"role": "user", "content": "user"}  # as the template calls the role
ANSWER = {"role": "assistant", "content": "The car is red.\nIs it?"}
CALL = {"function": {"name": "look", "arguments": '{"city": "Paris", "days": [1, 2]}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": 'It said "20 °C"\nand left.'}
THOUGHT = {"role": "assistant", "content": "<think>\nRed or not?\n</think>\n\nIt is red."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "The car."}, "Is it red?"]}
OPEN = [{"name": "look", "parameters": {"city": "str"}}]


def prompt_of(name, *messages, tools=""):
    (text,) = read_conversations(json.dumps([*messages]), "x")
    return read_prompt(text.messages, tools, rendering(name))


def pieces(prompt):
    return {
        name: [prompt.text[first:end] for first, end in spans]
        for name, spans in zip(prompt.names, prompt.spans, strict=True)
    }


FOUND = {"system": ["Be short."], "user 1": ["user"], "assistant 1": ["The car is red.\nIs it?"]}
NOT_HERE = ("shouts", "reads contents in parts")


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in NOT_HERE])
def test_each_content_is_found_where_the_template_puts_it(name):
    prompt = prompt_of(name, SYSTEM, USER, ANSWER)
    assert pieces(prompt) == FOUND
    assert prompt.missing == ()
    (place,) = prompt.spans[1]  # the content, not the name of its role
    before = prompt.text[: place[0]]
    assert before.endswith(("user\n", "Be short. \n\n", "Be short.\n\n"))


def test_what_the_template_changes_or_drops_is_said():
    prompt = prompt_of("shouts", USER, {"role": "assistant", "content": "USER"})
    assert pieces(prompt) == {"user 1": [], "assistant 1": ["USER"]}
    assert prompt.missing == ("the content of user 1 is changed by the template",)
    chat = (USER, THOUGHT, USER, THOUGHT)
    prompt = prompt_of("drops thinking", *chat)
    assert pieces(prompt)["assistant 1"] == ["It is red."]
    assert pieces(prompt)["assistant 2"] == ["Red or not?", "It is red."]
    assert prompt.missing == ("the thinking of assistant 1 is left out by the template",)
    fields = {**ANSWER, "reasoning_content": "Red or not?"}
    prompt = prompt_of("drops thinking", USER, fields, USER, fields)
    assert pieces(prompt)["assistant 2"] == ["Red or not?", ANSWER["content"]]
    assert prompt.missing == ("the thinking of assistant 1 is left out by the template",)


def test_calls_are_found_as_the_json_that_is_printed():
    tools = json.dumps(OPEN)
    prompt = prompt_of("prints tools as JSON", USER, CALLS, RESULT, ANSWER, tools=tools)
    ((first, end),) = prompt.spans[1]
    about = json.loads(prompt.text[first:end])
    assert about == {"name": "look", "parameters": {"city": "Paris", "days": [1, 2]}}
    ((first, end),) = prompt.tools
    assert json.loads(prompt.text[first:end]) == OPEN[0]
    assert pieces(prompt)["tool 1"] == [json.dumps(RESULT["content"], ensure_ascii=False)[1:-1]]
    assert prompt.missing == ()
    prompt = prompt_of("plain", USER, CALLS, RESULT, ANSWER)
    assert pieces(prompt)["assistant 1"] == []
    assert prompt.missing == ("a call of a tool by assistant 1 is written in another way",)
    said = {"role": "user", "content": '{"name": "look", "parameters": {}}'}
    call = {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": {}}]}
    prompt = prompt_of("plain", said, call, USER)
    assert pieces(prompt)["assistant 1"] == []


@pytest.mark.parametrize("name", ["plain", "reads contents in parts"])
def test_content_in_parts_is_read_as_the_template_does(name):
    prompt = prompt_of(name, PARTS, ANSWER)
    own = ["The car.\nIs it red?"] if name == "plain" else ["The car.", "Is it red?"]
    assert pieces(prompt) == {"user 1": own, "assistant 1": FOUND["assistant 1"]}
    assert prompt.missing == ()


def test_messages_are_named_and_conversations_told_apart():
    roles = ("system", "user", "assistant", "tool", "tool", "assistant", "user")
    named = "system, user 1, assistant 1, tool 1, tool 2, assistant 2, user 2"
    assert ", ".join(names_of(roles)) == named
    assert names_of(("system", "system")) == ("system 1", "system 2")
    objects = [{"messages": LIST, "id": "a"}, LIST[:1]]
    for written in ("\n".join(map(json.dumps, objects)), json.dumps(objects)):
        texts = read_conversations(written, "x")
        assert [(one.id, len(one.messages)) for one in texts] == [("a", 2), ("1", 1)]


LIST = [USER, ANSWER]
FILES = {
    "a list": json.dumps(LIST, indent=2),
    "an object": json.dumps({"messages": LIST, "model": "x"}, indent=1),
    "messages, a line each": "\n".join(map(json.dumps, LIST)) + "\n\n",
}


@pytest.mark.parametrize("written", FILES.values(), ids=FILES)
def test_one_conversation_is_read_in_each_shape(written):
    assert holds_messages(written)
    (text,) = read_conversations(written, "x")
    assert [(one.role, one.content) for one in text.messages] == [
        ("user", "user"),
        ("assistant", ANSWER["content"]),
    ]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"role": "user"}', "x is no message|message 1 is no message"),
        ('{"role": "user", "content": "a"}\n{"content": "b"}', "line 2 of x is no message"),
        ('{"role": "user", "content": "a"}\n{', "line 2 of x"),
        ('[{"role": "user", "content": {"image": 1}}]', "message 1 is no message"),
        ('{"messages": []}', "is empty"),
        ('{"messages": "a"}', "x holds no list of messages"),
        ("[]", "x holds no message"),
    ],
)
def test_what_is_no_conversation_is_one_line(written, said):
    with pytest.raises(InputError, match=said):
        read_conversations(written, "x")


@pytest.mark.parametrize("text", ["hello", '{"text": "a"}', "[1, 2]", "{", "", '["a"]'])
def test_other_texts_hold_no_messages(text):
    assert not holds_messages(text)


def test_only_one_file_of_messages_is_a_chat(tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([USER, ANSWER]))
    (found,) = chats_in([str(chat)], None)
    assert len(found.messages) == 2
    assert chats_in([str(chat), "a text"], None) is None
    assert chats_in(["a text.json"], None) is None
