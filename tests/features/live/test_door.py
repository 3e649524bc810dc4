"""Who is let in: with the token or its cookie, by this machine's name, from the page itself."""

import pytest

from attnviz.features.live.serving import AccessPolicy
from tests.features.live.server import Server

QUESTION = {"source": "The cat sat."}
JSON = {"Content-Type": "application/json"}
ROUTES = (
    *(("GET", path) for path in ("/", "/models", "/progress", "/openapi.json", "/nowhere")),
    *(("POST", path) for path in ("/attend", "/ablate", "/why", "/explain", "/")),
)


def cookie_of(server: Server) -> dict[str, str]:
    """What a browser sends after it has opened the address."""
    answer = server.send("GET", f"/?token={server.token}", headers={})
    assert answer.status == 200
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer x", "Bearer é", "Basic eDp4", "Bearer "])
def test_without_the_token_nothing_is_answered(server, method, path, given):
    headers = JSON | {"Authorization": given} if given else JSON
    answer = server.send(method, path, QUESTION, headers)
    assert (answer.status, "token is missing" in answer.error) == (403, True)


def test_the_token_becomes_a_strict_cookie_for_the_page(server):
    answer = server.send("GET", f"/?token={server.token}", headers={})
    cookie, *terms = answer.headers["set-cookie"].split("; ")
    assert sorted(term.lower()[:5] for term in terms) == ["httpo", "path=", "sames"]
    room = next(term for term in terms if term.lower().startswith("path="))[5:]
    assert len(room) > 20  # a server on another port, which nobody asks by that path, gets none
    assert f"url={room}" in answer.body.decode()
    assert server.send("GET", room, headers={"Cookie": cookie}).status == 200
    assert server.send("GET", f"{room}models", headers={"Cookie": cookie}).status == 200
    assert server.send("GET", f"{room}models", headers={}).status == 403
    assert cookie.startswith(f"attnviz-{server.port}=")
    assert server.token not in answer.body.decode() + cookie
    assert server.send("GET", "/", headers={"Cookie": cookie}).status == 200
    assert server.send("GET", "/", headers={"Cookie": f"{cookie}x"}).status == 403
    assert server.send("GET", f"/models?token={server.token}", headers={}).status == 403
    headers = {"Origin": f"http://127.0.0.1:{server.port}", "Sec-Fetch-Site": "same-origin"}
    assert (
        server.send("POST", "/attend", QUESTION, headers | JSON | cookie_of(server)).status == 200
    )


@pytest.mark.parametrize("token", ["", "x", "%00", "%ff", "%C3%BC", "%0d%0aSet-Cookie: a=b"])
def test_a_wrong_token_in_the_address_gives_no_cookie(server, token):
    answer = server.send("GET", f"/?token={token.replace(' ', '+')}", headers={})
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost:{port}.x", "",
     "127.0.0.1.nip.io:{port}", "[::1", "169.254.169.254:{port}", "127.0.0.1:{port}@x",
     "2130706433:{port}"],
)  # fmt: skip
def test_other_names_are_refused_even_with_the_token(server, host):
    named = {"Host": host.format(port=server.port)}
    for headers in (named | server.own, named | cookie_of(server)):
        answer = server.send("GET", "/models", headers=headers)
        assert (answer.status, "not the one" in answer.error) == (403, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_names_of_this_machine_are_answered(server, host):
    headers = {"Host": f"{host}:{server.port}"} | server.own
    assert server.send("GET", "/models", headers=headers).status == 200


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://localhost:{port}"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "same-site"},
        {},
    ],
)
def test_another_sites_page_gets_no_answer(server, said):
    headers = {name: value.format(port=server.port) for name, value in said.items()}
    answer = server.send("POST", "/attend", QUESTION, headers | JSON | cookie_of(server))
    assert answer.status == 403
    assert answer.error
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_preflights_and_forms_of_other_pages_are_refused(server):
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = server.send("OPTIONS", "/attend", headers=asked | cookie_of(server))
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)
    headers = {**server.own, "Content-Type": "text/plain"}
    answer = server.send("POST", "/attend", QUESTION, headers)
    assert (answer.status, answer.error) == (
        415,
        "a question is JSON: send content-type application/json",
    )


def test_every_answer_keeps_to_its_site(server):
    for method, path in ROUTES:  # one question is answered; the others are refused, which is quick
        headers = server.send(method, path, QUESTION if path == "/attend" else {}).headers
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["content-security-policy"] == "frame-ancestors 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_numbers_name_the_machine_foreign_names_do_not():
    door = AccessPolicy(frozenset({"localhost", "box"}), 8000, wide=True)
    for host in ("192.168.1.5:8000", "[fe80::1]:8000", "box:8000", "BOX:8000"):
        assert door.knows(host)
    for host in ("evil.example:8000", "192.168.1.5:80", "192.168.1.5", "box", "[fe80::1]"):
        assert not door.knows(host)
    assert not AccessPolicy(frozenset({"localhost"}), 8000).knows("192.168.1.5:8000")
    assert AccessPolicy(frozenset({"localhost"}), 80).knows("localhost")
    assert AccessPolicy(frozenset({"[::1]"}), 80).knows("[::1]")
