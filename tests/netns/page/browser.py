#!/usr/bin/python3
"""Reads the status page with a real Chromium, without a window.

browser.py ADDRESS TOKEN AXE [FOLDER]

What must happen meanwhile is done by the test that started this: each line on standard output names what has been seen, and an
empty line on standard input lets it go on. In FOLDER it leaves pictures of the views.
"""
import json
import signal
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE = 60
TUNNEL = "/tunnel?protocol=wireguard&interface=wg0&peer=other"
VIEWS = ["/", TUNNEL, "/performance", "/drops?all=yes", "/health"]


def driver_of_chromium():
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--window-size=1100,800"]:
        options.add_argument(argument)
    # Chromium itself asks its maker for updates and more.
    for argument in ["--disable-background-networking", "--disable-component-update", "--no-first-run"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


class Reader:
    def __init__(self, place, token, axe, folder):
        self.place, self.token, self.folder = place, token, folder
        with open(axe, encoding="utf-8") as file:
            self.axe = file.read()
        self.driver = driver_of_chromium()
        self.foreign = set()

    def open(self, path):
        self.driver.get(self.place + path)

    def text(self, selector):
        return self.driver.execute_script(
            "const it = document.querySelector(arguments[0]); return it ? it.textContent : null;", selector)

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            seen = condition()
            if seen:
                return seen
            time.sleep(0.1)
        raise AssertionError(f"{what}: {self.driver.page_source}")

    def said(self, what):
        print(what, flush=True)
        sys.stdin.readline()

    def console(self, allowed=()):
        """What the console says that is not allowed."""
        lines = [entry["message"] for entry in self.driver.get_log("browser")]
        return [line for line in lines if not any(word in line for word in allowed)]

    def leaves(self):
        """Requests of the page to another machine."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith((self.place, "data:", "chrome:", "about:")):
                    self.foreign.add(url)
        return self.foreign

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def scheme(self, value):
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def violations(self):
        self.driver.execute_script(self.axe)
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then((it) => done(it.violations), (error) => done([{id: String(error)}]));")
        return [(it["id"], [node["html"] + node.get("failureSummary", "") for node in it.get("nodes", [])]) for it in found]

    def picture(self, name):
        if self.folder:
            self.driver.save_screenshot(f"{self.folder}/{name}.png")

    def log_in(self):
        self.open("/")
        assert self.driver.current_url == self.place + "/login", self.driver.current_url
        assert not self.violations(), self.violations()
        field = self.driver.switch_to.active_element
        assert field.get_attribute("name") == "token", "the field has the focus"
        field.send_keys(self.token, Keys.ENTER)
        self.until("logged in", lambda: self.driver.current_url == self.place + "/")

    def keyboard(self):
        """The first key leads past the navigation, and what has the focus is seen."""
        self.open("/")
        body = self.driver.find_element(By.TAG_NAME, "body")
        body.send_keys(Keys.TAB)
        first = self.driver.switch_to.active_element
        assert first.text == "Skip to the content", first.text
        outline = self.driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", outline
        first.send_keys(Keys.ENTER)
        names = []
        for _ in range(3):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            names.append(self.driver.switch_to.active_element.get_attribute("id") or self.driver.switch_to.active_element.text)
        assert names[0] == "filter" and any("other" in name for name in names), names

    def focus_stays(self):
        """A row whose figures change keeps the focus of its link."""
        self.driver.execute_script("window.link = document.querySelector('#tunnels a'); window.link.focus()")
        self.until("the row is replaced", lambda: not self.driver.execute_script("return window.link.isConnected"))
        assert "other" in self.driver.switch_to.active_element.text

    def rates(self):
        self.open("/")
        rate = "#tunnels tr td:nth-child(5)"
        self.until("live", lambda: self.text("#connection") == "Live")
        self.said("LIVE")
        self.until("the rate moves", lambda: "Mbit/s" in (self.text(rate) or "") or "kbit/s" in (self.text(rate) or ""))
        self.focus_stays()
        self.open("/performance")
        self.until("a graph", lambda: self.driver.find_elements(By.CSS_SELECTOR, ".uplot canvas"))
        drawn = "return document.querySelector('[data-graph]').dataset.graph"
        before = self.driver.execute_script(drawn)
        self.until("the graph grows", lambda: self.driver.execute_script(drawn) != before)
        canvas = "const it = document.querySelector('.uplot canvas'); return it.toDataURL().length"
        assert self.driver.execute_script(canvas) > 2000, "something is drawn"
        console = self.console()
        assert not console, console

    def all_views(self, when):
        for scheme in ["light", "dark"]:
            for width in [1100, 390]:
                self.size(width, 800)
                self.scheme(scheme)
                for path in VIEWS:
                    self.open(path)
                    self.until("live", lambda: self.text("#connection") == "Live")
                    found = self.violations()
                    assert not found, f"{when} {scheme} {width} {path}: {found}"
                    wide = self.driver.execute_script("return document.documentElement.scrollWidth")
                    assert wide <= width, f"{when} {path} is {wide} wide at {width}"
        console = self.console()
        assert not console, f"{when}: {console}"

    def picture_of_performance(self):
        self.size(1100, 1140)
        self.scheme("light")
        self.open("/performance")
        self.until("a graph", lambda: self.driver.find_elements(By.CSS_SELECTOR, ".uplot canvas"))
        self.picture("page-performance")

    def pictures(self):
        for name, path, scheme, size in [
            ("page", "/", "light", (1100, 560)), ("page-narrow", "/", "dark", (390, 700)),
            ("page-tunnel", TUNNEL, "light", (1000, 620)),
        ]:
            self.size(*size)
            self.scheme(scheme)
            self.open(path)
            self.until("live", lambda: self.text("#connection") == "Live")
            self.picture(name)

    def death(self):
        self.open("/")
        self.until("live", lambda: self.text("#connection") == "Live")
        self.said("WATCHES")
        row = "#tunnels tr.down"
        cause = self.until("it is down, with a cause", lambda: self.text(row + " .cause"))
        colour = "return getComputedStyle(document.querySelector(arguments[0])).color"
        down, up = (self.driver.execute_script(colour, it) for it in [row + " .state", "#summary .up"])
        assert down != up and "down" in self.text(row + " .state"), (down, up)
        assert self.text("#summary .down strong") == "1", self.text("#summary")
        assert cause, cause
        self.open(TUNNEL)
        assert self.text(".condition.down .cause"), self.driver.page_source

    def restart(self):
        self.open("/")
        self.until("live", lambda: self.text("#connection") == "Live")
        self.driver.execute_script("window.isTheSamePage = true")
        assert not self.console()
        self.said("STOP")
        lost = self.until("lost", lambda: "Not connected since" in (self.text("#connection") or ""))
        assert lost
        self.said("START")
        self.until("live again", lambda: self.text("#connection") == "Live")
        assert self.driver.execute_script("return window.isTheSamePage"), "nobody logged in or reloaded"
        # Chromium itself notes each connection that is refused.
        console = self.console(["net::ERR_"])
        assert not console, console

    def without_script(self):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        for path, says in zip(VIEWS, ["other", "Last handshake", "<svg", "bad-tag"]):
            self.open(path)
            source = self.driver.page_source
            assert says in source and "Reload" in source and ">Live<" not in source, source
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def main():
    # The browser is ended also if the test ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reader = Reader(*sys.argv[1:4], sys.argv[4] if len(sys.argv) > 4 else None)
    try:
        reader.log_in()
        reader.rates()
        reader.keyboard()
        reader.all_views("up")
        reader.picture_of_performance()
        reader.death()
        reader.all_views("down")
        reader.pictures()
        reader.without_script()
        reader.restart()
        assert not reader.leaves(), f"requests that leave the machine: {reader.foreign}"
        print("DONE", flush=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        reader.driver.quit()


main()
