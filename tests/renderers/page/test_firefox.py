"""The pages work in Firefox too."""

import pytest

from tests.renderers.page.firefox import FIREFOX, firefox
from tests.renderers.page.samples import encoder_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(FIREFOX is None, reason="no firefox: apt-get install firefox-esr"),
]
COMPLETE = """
const look = () => document.body?.dataset.complete && (done(document.body.innerText), true);
if (!look()) new MutationObserver(look).observe(document.body, {attributes: true});
"""
TYPED = """
const written = document.querySelector('.written');
new MutationObserver(() => written.innerText.includes('bleue') && done(written.innerText))
  .observe(written, {childList: true, characterData: true, subtree: true});
const text = document.getElementById('text');
text.value = 'The blue house is old.';
text.dispatchEvent(new Event('input'));
"""


def test_pages_open_in_firefox(tmp_path, live_page):
    (tmp_path / "profile").mkdir()
    with firefox(tmp_path / "profile") as browser:
        for name, html in (("finished", encoder_page()), ("live", live_page)):
            file = tmp_path / f"{name}.html"
            file.write_text(html, encoding="utf-8")
            browser.call("WebDriver:Navigate", url=file.as_uri())
            said = browser.run(COMPLETE)
        assert "trained to align" in said
        assert "maison" in browser.run(TYPED)


UNDONE = """
const fragment = () => location.hash.slice(1);
const wait = (ready) => new Promise((go) => {
  const look = () => (ready() ? go() : setTimeout(look));
  look();
});
document.getElementById('tab-lines').click();
await wait(() => fragment() === 'view=lines');
document.querySelector('[aria-keyshortcuts=u]').click();
await wait(() => fragment() === 'view=heatmap');
document.querySelector('[aria-keyshortcuts=U]').click();
await wait(() => fragment() === 'view=lines');
document.querySelector('[aria-keyshortcuts=u]').click();
document.getElementById('tab-table').click();
await wait(() => fragment() === 'view=table');
history.back();
await wait(() => fragment() === 'view=heatmap');
document.getElementById('save-picture').click();
await wait(() => document.querySelector('#saving[open][aria-busy="false"]'));
const preview = document.querySelector('#saving canvas');
const { data } = preview.getContext('2d').getImageData(0, 0, preview.width, preview.height);
done([preview.width, new Set(data).size]);
"""


def test_firefox_goes_back_and_draws_what_is_saved(tmp_path):
    (tmp_path / "profile").mkdir()
    file = tmp_path / "page.html"
    file.write_text(encoder_page(), encoding="utf-8")
    with firefox(tmp_path / "profile") as browser:
        browser.call("WebDriver:Navigate", url=f"{file.as_uri()}#view=heatmap")
        browser.run(COMPLETE)
        width, colors = browser.run(f"(async () => {{{UNDONE}}})();")
    assert width >= 673
    assert colors > 20
