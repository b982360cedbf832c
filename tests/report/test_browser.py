"""The page in a real browser: it draws, restyles, downloads and prints, and asks nobody for anything."""

import csv
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from report.gallery import FIELD, POINTS, gallery, space_page

from hpml.report.page import write_page
from hpml.report.theme import DARK, LIGHT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FIGURES, PLOTS = 9, 13
SHAPES = ".scatterlayer path, .barlayer path, .heatmaplayer image, .contourlayer path"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser was tried.")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"No browser is installed (looked for {', '.join(BROWSERS)}): the page was not tried in one.")
    # Chromium refuses its sandbox to root; the software renderer draws the view in space without a graphics card.
    arguments = ["--enable-unsafe-swiftshader", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_page(gallery(), tmp_path_factory.mktemp("page") / "report.html")


class Visit:
    """A page in the browser, what went wrong on it, and what it asked for."""

    def __init__(self, browser, path, **screen):
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | screen))
        self.page, self.address = self.context.new_page(), path.as_uri()
        self.problems, self.requests = [], []
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(self.address)

    def _listen(self, message):
        if message.type == "error":
            self.problems.append(message.text)

    def draw_all(self):
        """Scroll through the page, as a reader does, until every figure is drawn."""
        self.page.evaluate(
            """async () => {
                for (const plot of document.querySelectorAll('.plot')) {
                    plot.scrollIntoView({ behavior: 'instant' });
                    await new Promise(done => setTimeout(done, 20));
                }
            }"""
        )
        self.page.wait_for_function("[...document.querySelectorAll('.plot')].every(p => p.dataset.state === 'drawn')")

    def check(self):
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith(("data:", "blob:"))] == [self.address]


@pytest.fixture(scope="module")
def opened(browser, path):
    visit = Visit(browser, path, color_scheme="light")
    visit.waiting = visit.page.locator(".plot:not([data-state])").count()
    visit.draw_all()
    yield visit
    visit.context.close()


@pytest.fixture
def page(opened):
    yield opened.page
    opened.check()


def colours(page, plot):
    """The colours of the shapes that plotly has drawn in a figure."""
    return page.evaluate(
        """name => [...document.getElementById(name).querySelectorAll('svg path')]
            .map(path => [path.style.fill, path.style.stroke]).flat().filter(Boolean)""",
        plot,
    )


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[place : place + 2], 16) for place in (1, 3, 5)))


def test_every_figure_is_drawn_when_it_is_looked_at(page, opened):
    assert page.locator("figure").count() == FIGURES
    assert opened.waiting > 0
    shapes = page.evaluate(
        f"[...document.querySelectorAll('.plot')].map(plot => plot.querySelectorAll('{SHAPES}').length)"
    )
    assert len(shapes) == PLOTS
    assert min(shapes) > 0


def test_contents_lead_to_their_sections(page):
    links = page.locator("nav a").all()
    assert len(links) == 5
    assert len({link.get_attribute("href") for link in links}) == 5
    for link in links:
        link.click()
        name = link.get_attribute("href")[1:]
        assert page.locator(f"#{name} h2").inner_text() == link.inner_text()
        page.wait_for_function(
            "name => { const top = document.getElementById(name).getBoundingClientRect().top;"
            " return (top > -5 && top < 300) || scrollY + innerHeight > document.documentElement.scrollHeight - 5 }",
            arg=name,
        )


def test_downloads_hold_the_numbers_of_the_figure(page):
    with page.expect_download() as waiting:
        page.locator("#figure-1 .download").click()
    assert waiting.value.suggested_filename == "f-potential-part-residual.csv"
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
    arrows = [row for row in rows if row["kind"] == "arrow"]
    numbers = np.array([[float(row[name]) for name in ("x", "y", "u", "v")] for row in arrows])
    field, direction, residual = numbers.reshape(3, len(POINTS), 4)
    assert np.allclose(field, np.hstack([POINTS, FIELD]))
    assert np.allclose(field[:, 2:], direction[:, 2:] + residual[:, 2:])


def test_the_legend_switches_series_from_the_keyboard(page):
    # Figure 4 has two curves, and one of them a band.
    count = "document.querySelectorAll('#figure-4 .scatterlayer .trace').length"
    assert page.evaluate(count) == 3
    button = page.locator("#figure-4 .legend button", has_text="treated")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"{count} === 1")
    assert button.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Enter")
    page.wait_for_function(f"{count} === 3")


def test_every_figure_has_words_for_those_who_do_not_see_it(page):
    labels = page.evaluate("[...document.querySelectorAll('.plot')].map(plot => plot.getAttribute('aria-label'))")
    assert all(len(label or "") > 10 for label in labels)
    assert page.locator("figure figcaption p").count() == FIGURES
    focusable = page.evaluate("[...document.querySelectorAll('.scroll, pre')].every(e => e.tabIndex === 0)")
    assert focusable


def test_figures_follow_the_dark_on_the_fly(page):
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == rgb(LIGHT.paper)
    before = colours(page, "figure-1-0")
    assert rgb(LIGHT.residual) in before
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{background} === '{rgb(DARK.paper)}'")
    page.wait_for_function(
        "colour => [...document.querySelectorAll('#figure-1-0 svg path')].some(p => p.style.stroke === colour)",
        arg=rgb(DARK.residual),
    )
    after = colours(page, "figure-1-0")
    page.emulate_media(color_scheme="light")
    assert len(after) == len(before)
    light_only = {rgb(shade) for shade in LIGHT.shades()} - {rgb(shade) for shade in DARK.shades()}
    assert light_only & set(before)
    assert not light_only & set(after)


def test_paper_gets_every_figure_in_light_colours(browser, path):
    visit = Visit(browser, path, color_scheme="dark")
    page = visit.page
    assert page.locator(".plot:not([data-state])").count() > 0
    # Registered after the page's own listener, so it sees what goes on paper.
    page.evaluate(
        f"""() => addEventListener('beforeprint', () => {{
            window.printed = [...document.querySelectorAll('.plot')].map(plot => [
                plot.querySelectorAll('{SHAPES}').length,
                plot.getBoundingClientRect().width * Number(plot.closest('.panels').dataset.columns)]);
            window.paths = [...document.querySelectorAll('#figure-1-0 svg path')].map(p => p.style.stroke);
        }})"""
    )
    sheet = page.pdf(format="A4", prefer_css_page_size=True)
    assert sheet.startswith(b"%PDF")
    assert sheet.count(b"/Type /Page\n") >= 3
    printed = page.evaluate("window.printed")
    assert len(printed) == PLOTS
    assert all(shapes > 0 and width <= 660 for shapes, width in printed)
    assert rgb(LIGHT.residual) in page.evaluate("window.paths")
    # Back on the screen it is dark again.
    page.wait_for_function(
        "colour => [...document.querySelectorAll('#figure-1-0 svg path')].some(p => p.style.stroke === colour)",
        arg=rgb(DARK.residual),
    )
    visit.check()
    visit.context.close()


def test_the_page_fits_a_phone(browser, path):
    visit = Visit(browser, path, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    visit.draw_all()
    page = visit.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .skip, pre, .plot > *'))
            .filter(e => e.getBoundingClientRect().right > 391).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    # Panels are stacked, and the wide table scrolls on its own.
    lefts = page.evaluate("[...document.querySelectorAll('#figure-1 .plot')].map(p => p.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1
    assert page.evaluate("(t => t.scrollWidth > t.clientWidth)(document.querySelector('.scroll'))")
    visit.check()
    visit.context.close()


def test_without_scripts_text_tables_and_data_remain(browser, path):
    visit = Visit(browser, path, java_script_enabled=False)
    page = visit.page
    assert "need JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("table td").count() == 10
    with page.expect_download() as waiting:
        page.locator("#figure-4 .download").click()
    assert "treated,1000,0,0,0.002" in Path(waiting.value.path()).read_text()
    visit.check()
    visit.context.close()


def test_the_view_in_space_is_painted_and_printed(browser, tmp_path):
    visit = Visit(browser, write_page(space_page(), tmp_path / "space.html"), viewport={"width": 500, "height": 600})
    visit.draw_all()
    visible = visit.page.evaluate(
        """() => { dispatchEvent(new Event('beforeprint'));
            const still = document.querySelector('.still');
            const pen = still.getContext('2d');
            return pen.getImageData(0, 0, still.width, still.height).data.some(value => value > 0) }"""
    )
    assert visible
    visit.check()
    visit.context.close()
