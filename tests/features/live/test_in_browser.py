"""The served page in a real browser: it asks its server, and nobody and nothing else acts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.features.live.server import Server, serving
from tests.renderers.page.samples import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def tab(browser: Any, server: Server) -> Iterator[Any]:
    """The page, opened by the address that was printed; nothing may be said or refused in it."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    opened, said = context.new_page(), list[str]()
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: said.append(dialog.message))
    asked = list[str]()
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(server.address)
    settled(opened)
    yield opened
    context.close()
    assert [line for line in said if "status of 400" not in line] == []  # the browser's own words
    assert {url.split("/")[2] for url in asked if not url.startswith(("blob:", "data:"))} == {
        f"127.0.0.1:{server.port}"
    }


def settled(tab: Any) -> None:
    """Wait for the answer to what was asked last."""
    tab.wait_for_selector("#stage[aria-busy=false]")
    tab.wait_for_selector(".sentence:not(.waiting)")


def typed(tab: Any, text: str) -> None:
    tab.locator("textarea").first.fill(text)
    settled(tab)


def failed(tab: Any, why: str) -> None:
    """Wait until the page says what went wrong."""
    tab.locator(".failed", has_text=why).first.wait_for()


def test_the_token_leaves_the_address(tab, server):
    address = tab.evaluate("location.href.split('#')[0]")
    assert re.fullmatch(rf"http://127.0.0.1:{server.port}/[\w-]+/", address)
    assert server.token not in address
    assert tab.evaluate("document.cookie") == ""
    tab.reload()
    settled(tab)
    assert "voiture" in tab.locator("#ask").inner_text()


@pytest.mark.core
def test_what_is_typed_is_answered(tab):
    typed(tab, "The cat sat on the mat.")
    tab.locator("#ask", has_text="chat").wait_for()
    tab.locator("#overview .head").nth(12).click()
    tab.keyboard.press("o")
    tab.wait_for_selector("#ask .off-list li button")
    settled(tab)
    tab.locator("#ask", has_text=re.compile("nats (lower|higher)")).wait_for()
    assert "cross" in tab.locator(".off-list").inner_text()


def test_a_sentence_before_the_first_answer_is_answered(browser, server):
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(server.address)
    tab.locator("#text").fill("The cat sleeps.")
    tab.wait_for_selector("body[data-complete]", state="attached")
    settled(tab)
    tab.locator(".written", has_text="chat").wait_for()
    assert "cat" in tab.locator(".tokens").first.inner_text()
    context.close()


def test_hostile_words_are_shown_and_do_nothing(tab):
    for text in HOSTILE:
        typed(tab, f"the {text} cat")
        assert tab.evaluate("document.querySelectorAll('img, iframe, object, embed').length") == 0
        assert tab.evaluate("typeof hacked") == "undefined"


def test_a_mistake_is_told_in_the_page_and_mended_by_typing(tab):
    tab.locator("textarea").first.fill("x" * 8001)
    failed(tab, "8,000 characters are read at most")
    typed(tab, "The cat sat.")
    tab.wait_for_selector(".sentence .failed:empty", state="attached")


def test_the_language_and_the_token_are_chosen(tab):
    assert tab.locator("#text").get_attribute("placeholder") == "A sentence in English or French"
    tab.locator('[data-switch="to"]').select_option("en")
    tab.locator("label", has_text="English, written by the model").wait_for()
    tab.locator('[data-switch="lens"]').select_option("effect")
    tab.locator('[data-switch="explain"]').select_option("1")
    first = tab.locator(".written .word bdi").first.inner_text()
    tab.locator(".fact", has_text=f"output {first}").wait_for()
    assert "to=en" in tab.url
    assert "explain=1" in tab.url


def test_a_model_of_one_text_has_no_second_field(browser):
    with serving("--model", "pocket-lm") as server:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(server.address)
        settled(tab)
        assert not tab.locator("#into").is_visible()
        assert tab.locator(".written .word").count() > 3
        assert tab.locator(".written button[title*='hides']").count() == 0
        assert tab.get_by_role("button", name="Guided tour").count() == 0
        tab.locator(".tokens button").nth(2).click()
        tab.locator(".score", has_text=re.compile("nats (lower|higher)")).wait_for()
        tab.locator('[data-switch="model"]').select_option("pocket-vit")
        tab.locator("#tab-image[aria-selected=true]").wait_for()
        assert not tab.locator("#text").is_visible()
        tab.locator(".written", has_text="star").wait_for()
        tab.locator('[data-switch="model"]').select_option("pocket")
        tab.get_by_role("button", name="Guided tour").wait_for()
        assert tab.locator("#into").is_visible()
        server.process.terminate()
        server.process.wait()
        tab.locator("textarea").first.fill("The cat sat.")
        failed(tab, "running?")
        context.close()


@pytest.mark.models
def test_without_predictions_nothing_is_switched_off(browser, tmp_path):
    from tests.hugging_face.tiny_models import bert

    with serving("--model", bert(tmp_path)) as server:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(server.address)
        settled(tab)
        told = tab.locator(".sentence .hint").first.inner_text()
        assert "nothing can be switched off" in told
        assert "--lens" not in told
        assert [
            tab.locator(what).count() for what in (".tokens button", "#acts button:enabled")
        ] == [0, 0]
        assert not tab.locator("#overview .legend").is_visible()
        assert not tab.locator(".score").first.is_visible()
        tab.locator("#overview .head").first.press("o")
        assert not tab.locator(".off-bar").is_visible()
        context.close()
