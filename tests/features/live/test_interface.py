"""The interface is what `openapi.json` says: every route, and every field of real answers."""

import json
import threading
from collections.abc import Iterator
from importlib.resources import files
from inspect import cleandoc
from typing import Any

import jsonschema
import msgspec
import pytest

from attnviz.features.live.answering import Answers, Question
from attnviz.features.live.serving import AccessPolicy, JobQueue, application
from tests.samples import ODD

FILE = json.loads(files("attnviz.features.live").joinpath("openapi.json").read_bytes())
SCHEMAS = FILE["components"]["schemas"]
TEXT = "The red car is fast."
OFF = {
    "heads": [["encoder", "0", "1"]],
    "links": [["cross", None, None, 1, 0]],
    "tokens": [["source", 2]],
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "a text": {"source": TEXT, "id": 7},
    "a pair": {"source": TEXT, "target": "La voiture rouge est rapide.", "to": "fr"},
    "parts off": {"source": TEXT, "off": OFF},
    "one text": {"source": TEXT, "command": "self", "model": "pocket"},
    "effects": {"source": TEXT, "lens": "norm"},
    "nothing left": {"source": "a", "off": {"tokens": [["source", 0], ["source", 1]]}},
    "odd": {"source": " ".join(ODD)},
    "long": {"source": "The cat sat. " * 150, "command": "self"},
}


def check(value: Any, *names: str) -> None:
    """Hold a value against one of the file's schemas."""
    schema = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}
    jsonschema.Draft202012Validator({**schema, "components": FILE["components"]}).validate(value)


def named(content: dict[str, Any]) -> str:
    """The schema that a body has."""
    return str(content["application/json"]["schema"]["$ref"].rpartition("/")[2])


def test_the_schemas_are_schemas_and_leave_no_field_open():
    def walk(schema: Any) -> Iterator[Any]:
        if isinstance(schema, dict):
            yield schema
        if isinstance(schema, dict | list):
            for one in schema.values() if isinstance(schema, dict) else schema:
                yield from walk(one)

    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        for part in walk(schema):
            if part.get("type") == "object":
                assert "additionalProperties" in part, part


def test_routes_and_questions_are_described():
    app = application(JobQueue(Answers(None)), AccessPolicy(frozenset(), 0), "")  # type: ignore[arg-type]
    routes = {
        (route.path, method.lower())  # type: ignore[attr-defined]
        for route in app.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    asked_by_browsers = {("/favicon.ico", "get")}
    assert routes - asked_by_browsers == {
        (path, how) for path, told in FILE["paths"].items() for how in told
    }
    _, found = msgspec.json.schema_components(
        [Question], ref_template="#/components/schemas/{name}"
    )
    for name, schema in found.items():
        described = {**SCHEMAS[name], "properties": {}}
        for field, told in SCHEMAS[name]["properties"].items():
            described["properties"][field] = {k: v for k, v in told.items() if k != "description"}
            assert told["description"]
        assert described == {**schema, "description": cleandoc(schema["description"])}


@pytest.mark.slow
@pytest.mark.parametrize("case", QUESTIONS)
@pytest.mark.parametrize("path", ["/attend", "/ablate", "/why", "/explain"])
def test_every_field_of_an_answer_is_described(server, path, case):
    if path != "/attend" and case in ("odd", "long"):
        return  # many tokens, for which the others take long and say nothing else
    post = FILE["paths"][path]["post"]
    question = QUESTIONS[case] | ({"link": ["encoder", "1", "0", 0, 1]} if path == "/why" else {})
    check(question, named(post["requestBody"]["content"]))
    answer = server.ask(path, **question)
    check(answer, named(post["responses"]["200"]["content"]))
    assert answer["id"] == question.get("id", 0)
    with pytest.raises(jsonschema.ValidationError):
        check({**answer, "more": 1}, named(post["responses"]["200"]["content"]))


@pytest.mark.parametrize("path", ["/models", "/progress"])
def test_what_is_read_is_described(server, path):
    content = FILE["paths"][path]["get"]["responses"]["200"]["content"]
    check(server.send("GET", path).json(), named(content))


def test_the_file_is_served_and_nothing_else(server):
    assert server.send("GET", "/openapi.json").json() == FILE
    for method, path, status in (("GET", "/x", 404), ("GET", "/attend", 405), ("PUT", "/", 405)):
        assert server.send(method, path).status == status
        assert server.send(method, path).error


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "this is no question: Input data was truncated"),
        (b"null", 400, "Expected `object`, got `null`"),
        (b'{"source":"a"', 400, "this is no question"),
        (b'{"source":"a","more":1}', 400, "unknown field `more`"),
        (b'{"source":1}', 400, "Expected `str`, got `int` - at `$.source`"),
        (b'{"source":"\xff"}', 400, "this is no question"),
        (b'{"source":"\\ud800"}', 400, "this is no question"),
        (b"[" * 200_000, 400, "this is no question"),
        (b'{"source":"a","off":{"heads":' + b"[" * 200_000, 400, "this is no question"),
        (b'{"source":"a","id":-1}', 400, "at `$.id`"),
        (b'{"source":"a","id":1e400}', 400, "this is no question"),
        (b'{"source":"a","lens":"<script>"}', 400, "Invalid enum value"),
        (b'{"source":"a","off":{"heads":[["encoder","0"]]}}', 400, "of length 3"),
        (b'{"source":"a","off":{"tokens":[["source",-1]]}}', 400, "at `$.off.tokens"),
        (b'{"source":"' + b"a" * 8001 + b'"}', 400, "source is too long: 8,000 characters are"),
        (b'{"source":" "}', 422, "the source is empty"),
        (b'{"source":"a","model":"/etc/passwd"}', 400, "unknown model '/etc/passwd'"),
        (b'{"source":"a","model":"\\u001b[31m\\n\\u202e"}', 400, "unknown model"),
        (b" " * (20 << 20), 413, "a question has 17,825,792 bytes at most"),
    ],
)
def test_a_body_that_is_no_question_is_refused_in_one_line(server, body, status, said):
    answer = server.send("POST", "/attend", body)
    assert answer.status == status
    assert said in answer.error
    assert not {"\x1b", "\u202e"} & set(answer.error)
    check(answer.json(), "Error")
    assert str(status) in FILE["paths"]["/attend"]["post"]["responses"]


@pytest.mark.slow
def test_progress_says_what_is_done(server):
    slow = threading.Thread(
        target=server.ask, args=("/ablate",), kwargs={"source": "The cat sat on the mat. " * 20}
    )
    slow.start()
    seen = set()
    while slow.is_alive():
        doing = server.send("GET", "/progress").json()["doing"]
        seen.add(str(doing).partition(":")[0])
    slow.join()
    assert "heads off one by one" in seen
    assert server.send("GET", "/progress").json() == {"doing": None, "seconds": 0.0, "waiting": 0}
