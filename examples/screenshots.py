"""Photograph the report of the quickstart for the documentation; needs Chromium and playwright."""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright
from show_output import command, workplace

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
# Name, width, height, colours.
SHOTS = (("report_desktop", 1200, 830, "light"), ("report_phone", 390, 1050, "dark"))
# The year 1899.
MOVE = "s = document.getElementById('slider'); s.value = 28; s.dispatchEvent(new Event('input'))"


def main() -> None:
    """Fit, report, open, photograph."""
    data = "nile.csv --column volume --time year"
    with workplace(), sync_playwright() as driver:
        _ = command(f"psdfilter fit {data} --model model.py:river --out fitted --quiet")
        options = "--model fitted/model.psd --title 'The Nile at Aswan' --quiet"
        _ = command(f"psdfilter report {data} {options}")
        page = Path("report.html").resolve().as_uri()
        chromium = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, width, height, colours in SHOTS:
            size = {"width": width, "height": height}
            tab = browser.new_context(viewport=size, color_scheme=colours).new_page()
            tab.goto(page)
            tab.wait_for_function("document.documentElement.dataset.ready === 'yes'")
            tab.evaluate(MOVE)
            tab.wait_for_timeout(500)
            tab.screenshot(path=ASSETS / f"{name}.png")
            print(f"wrote {name}.png")
        browser.close()


if __name__ == "__main__":
    main()
