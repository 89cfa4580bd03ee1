"""The page in a real browser: Debian's chromium, driven by playwright."""

import shutil

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, report):
    """The report, opened as a file; in the end nothing has gone wrong and nothing was asked of a network."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.page.as_uri())
    page.wait_for_selector("[data-curve]")
    yield page
    assert complaints == []
    assert requests == [report.page.as_uri()]
    page.close()


def curves_of(page):
    return page.locator("[data-curves='0'] .plot").first.locator("[data-curve]")


def test_text_from_runs_does_nothing(page):
    assert page.title() == "mepg report"
    assert page.locator("img").count() == 0


def test_a_click_on_the_legend_switches_a_curve_off_and_on(page):
    assert curves_of(page).count() == 3
    button = page.get_by_role("button", name="ME-SAC", exact=True).first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert curves_of(page).evaluate_all("all => all.map(one => one.dataset.curve)") == ["SAC", "TD3"]
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert curves_of(page).count() == 3


def test_the_legend_needs_no_mouse(page):
    button = page.get_by_role("button", name="SAC", exact=True).first
    button.focus()
    page.keyboard.press("Enter")
    assert curves_of(page).count() == 2
    page.keyboard.press("Space")
    assert curves_of(page).count() == 3


def test_switching_everything_off_is_said(page):
    for button in page.locator("[data-curves='0'] .legend button").all():
        button.click()
    assert "every curve is switched off" in page.locator("[data-curves='0'] .plot").first.inner_text()


def test_pointing_shows_values(page):
    plot = page.locator("[data-curves='0'] .plot").first
    tip = plot.locator(".tip")
    assert not tip.is_visible()
    plot.locator("svg").hover(position={"x": 300, "y": 100})
    text = tip.inner_text()
    assert "200 steps" in text
    assert all(name in text for name in ("ME-SAC", "SAC", "TD3", "±"))
    page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_arrow_keys_move_along_the_curves(page):
    plot = page.locator("[data-curves='0'] .plot").first
    plot.locator("svg").focus()
    for steps in ("100 steps", "200 steps", "300 steps"):
        page.keyboard.press("ArrowRight")
        assert steps in plot.locator(".tip").inner_text()
    assert "1 of 2 seeds" in plot.locator(".tip").inner_text()  # TD3's second seed did not get so far
    page.keyboard.press("ArrowLeft")
    assert "200 steps" in plot.locator(".tip").inner_text()


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_page_never_scrolls_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("[data-curves='0'] .plot svg").first.bounding_box()["width"] <= width


def test_dark_mode_has_colours_of_its_own(page):
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) != light


def test_a_switch_between_steps_and_core_hours(page):
    block = page.locator("[data-curves='0']")
    assert curves_of(page).count() == 3
    hours = block.get_by_role("button", name="core-hours", exact=True)
    hours.click()
    assert hours.get_attribute("aria-pressed") == "true"
    assert block.get_by_role("button", name="steps", exact=True).get_attribute("aria-pressed") == "false"
    assert curves_of(page).evaluate_all("all => all.map(one => one.dataset.curve)") == ["ME-SAC", "SAC"]  # TD3: unknown
    plot = block.locator(".plot svg").first
    plot.focus()
    seen = []
    for _ in range(3):  # two evaluations lie at 0 core-hours, and the keys get past them
        page.keyboard.press("ArrowRight")
        seen.append(block.locator(".tip b").first.inner_text())
    assert seen == ["0 core-hours", "0.003 core-hours", "0.003 core-hours"]
    block.get_by_role("button", name="steps", exact=True).click()
    assert curves_of(page).count() == 3
