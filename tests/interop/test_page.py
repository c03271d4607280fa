"""The page of the router in a real browser: headless Chromium, driven through WebDriver."""

import contextlib
import json
import re
import shutil

import pytest
from harness import FEED_ASN, Ribtide, binary, wait_for
from harness.config import HEAD, LAB
from harness.peers import FEEDS
from harness.ribtide import ROOT, feed_options
from test_api_tls import ADDRESS, READ_TOKEN, Bench
from test_api_tls import PORT as TLS_PORT

webdriver = pytest.importorskip("selenium.webdriver", reason="python3-selenium is not installed")
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.skipif(not shutil.which("chromedriver"), reason="chromium-driver is not installed")

PORT = 8080
ROUTES = 20_000
#: Markup in a text of the configuration, as a peer could send it in a shutdown communication.
MARKUP = "<img src=x onerror=document.title='owned'>"
CONFIG = HEAD + f"""
[fib]
{LAB}
[bgp.group.feeds]
type = "external"
peer-asn = {FEED_ASN}
passive = true
import = ["accept"]

[[bgp.group.feeds.neighbor]]
address = "{FEEDS[0]}"
description = "{MARKUP}"

[[bgp.group.feeds.neighbor]]
address = "{FEEDS[1]}"

[api]
http = "127.0.0.1:{PORT}"
"""


class Page(contextlib.AbstractContextManager):
    """The page in a browser on `host`."""

    def __init__(self, host, width=1280, height=1100, url=f"http://127.0.0.1:{PORT}"):
        self.host, self.url = host, url
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--ignore-certificate-errors", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        with host.inside():
            self.browser = webdriver.Chrome(options=options)

    def open(self, path="/"):
        with self.host.inside():
            self.browser.get(f"{self.url}{path}")

    def js(self, script, *args):
        with self.host.inside():
            return self.browser.execute_script(script, *args)

    def text(self, selector):
        """The visible text of an element, empty where there is none."""
        return self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def keys(self, *keys):
        with self.host.inside():
            self.browser.switch_to.active_element.send_keys(*keys)

    def stage(self, name):
        return self.text(f"[data-stage='{name}']")

    def routes(self, stage):
        """How many routes a stage had, by its card."""
        found = re.search(r"([0-9,]+) in all", self.stage(stage))
        return int(found[1].replace(",", "")) if found else 0

    def errors(self):
        """What the browser logged: errors of scripts, and what the page's policy blocked."""
        with self.host.inside():
            return [entry["message"] for entry in self.browser.get_log("browser")]

    def screenshot(self, path):
        with self.host.inside():
            assert self.browser.save_screenshot(str(path))

    def __exit__(self, *_):
        with self.host.inside():
            self.browser.quit()


class Served(Ribtide):
    """A router whose configuration has an `[api]` table of its own."""

    def __init__(self, host, config):
        self.config_text = config
        super().__init__(host, config)

    def start(self):
        self.config.write_text(self.config_text + f'socket = "{self.socket}"\n')
        self.process = self.host.start(self.name, binary(), "run", "-c", self.config)
        wait_for(f"{self.name} answers", lambda: self.call("GET", "/v1/pipeline"), 20, alive=[self.process])


def test_page_shows_the_way_of_routes_and_finds_a_prefix(host):
    router = Served(host, CONFIG)
    feed = host.feeds.start("blast", binary(), "blast", "--ipv4", ROUTES, "--next-hops4", "10.0.0.0/28", *feed_options(0))
    with Page(host) as page:
        page.open()
        # Every stage has had every route, by the page's own reading of the API.
        for stage in ("reader", "shard", "rib", "syncd"):
            wait_for(f"{stage} shows its routes", lambda: page.routes(stage) >= ROUTES, 60, alive=[router.process, feed])
        wait_for("the header names the router", lambda: "AS 65001" in page.text("#router"), 20)
        wait_for("a neighbor is established", lambda: "Established" in page.text("#neighbors"), 20)
        # The description is text.
        wait_for("the other neighbor is listed", lambda: FEEDS[1] in page.text("#neighbors"), 20)
        assert page.js("return document.images.length") == 0 and page.js("return document.title") == "ribtide"

        # By keyboard alone: search, read the journey, move through the details.
        prefix = router.show("fib")[0]["prefix"]
        page.keys("/")
        page.keys(prefix, Keys.ENTER)
        wait_for("the journey is there", lambda: "virtual switch" in page.text("#explained"), 20)
        told = router.text("explain", prefix)
        conclusion = told.strip().splitlines()[-1].removeprefix("=> ")
        assert conclusion in page.text("#explained")
        states = page.js("return [...document.querySelectorAll('#explained li')].map((step) => step.dataset.state)")
        assert states and set(states) == {"passed"}
        page.keys(Keys.ESCAPE)
        for key, panel, expected in (("2", "groups", "egress-"), ("3", "shards", "shard-0"), ("4", "nexthops", "10.0.0."),
                                     ("5", "queues", "shards to RIB"), ("6", "threads", "shard-0"), ("7", "timeline", "shard-0")):
            page.keys(key)
            wait_for(f"{panel} shows {expected}", lambda: expected in page.text(f"#{panel}"), 20)
            assert page.js("return document.querySelectorAll('[role=tabpanel]:not([hidden])').length") == 1

        # What cannot be read is a sentence, and the page goes on.
        page.keys("/")
        page.js("document.getElementById('prefix').value = ''")
        page.keys("no prefix", Keys.ENTER)
        wait_for("the refusal is shown", lambda: "no prefix" in page.text("#explained .bad"), 20)
        refused = [error for error in page.errors() if "400" not in error]
        assert refused == []

        # A link to a search shows its answer.
        page.open(f"/#prefix={prefix}")
        wait_for("the journey of the link", lambda: conclusion in page.text("#explained"), 20)

        # On a phone nothing is wider than the screen.
        with host.inside():
            page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                         {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True})
        assert page.js("return document.documentElement.scrollWidth") <= 390
        page.screenshot(host.folder / "phone.png")

        # The router ends and comes back: the page says so, and finds it again.
        router.process.kill()
        wait_for("the page misses the router", lambda: "no answer" in page.text("#router"), 20)
        router.start()
        wait_for("the page has the router again", lambda: "AS 65001" in page.text("#router"), 30)


#: Where images of the page go: nothing compares them, a person looks at them.
IMAGES = ROOT / "target" / "page"

#: The contrast of the text of each element of the page with what is behind it, by WCAG 2's formula: the elements below 4.5.
LOW_CONTRAST = """
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = rgb(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${e.tagName} ${e.className} "${e.innerText.slice(0, 30)}": ${ratio.toFixed(2)}`);
  }
  return low;
"""


def test_page_is_readable_in_light_and_in_dark(host):
    router = Served(host, CONFIG)
    feed = host.feeds.start("blast", binary(), "blast", "--ipv4", 1000, "--next-hops4", "10.0.0.0/28", *feed_options(0))
    IMAGES.mkdir(parents=True, exist_ok=True)
    backgrounds = {}
    with Page(host) as page:
        for scheme in ("light", "dark"):
            with host.inside():
                page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            page.open()
            wait_for("the routes are shown", lambda: page.routes("syncd") >= 1000, 60, alive=[router.process, feed])
            wait_for("a neighbor is established", lambda: "Established" in page.text("#neighbors"), 20)
            page.keys("/")
            page.keys(router.show("fib")[0]["prefix"], Keys.ENTER)
            wait_for("the journey is there", lambda: "virtual switch" in page.text("#explained"), 20)
            backgrounds[scheme] = page.js("return getComputedStyle(document.body).backgroundColor")
            assert page.js(LOW_CONTRAST) == [], scheme
            page.screenshot(IMAGES / f"{scheme}.png")
    assert backgrounds == {"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 26)"}


def search_while_routes_load(host, many):
    """Searches a prefix while `many` routes come, and reads its journey before they are all there."""
    router = Served(host, CONFIG)
    feed = host.feeds.start("blast", binary(), "blast", "--ipv4", many, "--next-hops4", "10.0.0.0/28", *feed_options(0))
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Page(host) as page:
        page.open()
        wait_for("routes come", lambda: page.routes("rib") > 0, 60, alive=[router.process, feed])
        [route] = json.loads(router.call("GET", "/v1/fib?limit=1&protocol=ebgp"))["routes"]
        page.keys("/")
        page.keys(route["prefix"], Keys.ENTER)
        wait_for("the journey is there", lambda: route["prefix"] in page.text("#explained") and "virtual switch" in page.text("#explained"), 60)
        seen = page.routes("syncd")
        page.screenshot(IMAGES / f"loading-{many}.png")
        wait_for("all are in the chip", lambda: page.routes("syncd") >= many, 600, alive=[router.process, feed])
        assert page.errors() == []
    return seen


def test_page_finds_a_prefix_while_routes_load(host):
    search_while_routes_load(host, ROUTES)


@pytest.mark.long
@pytest.mark.alone
def test_page_finds_a_prefix_while_1_000_000_routes_load(host):
    assert search_while_routes_load(host, 1_000_000) < 1_000_000


def test_page_of_a_router_without_bgp(host):
    router = Served(host, f'[router]\nasn = 65001\nrouter-id = "10.0.0.1"\n\n[fib]\n{LAB}\n'
                          f'[[static]]\nprefix = "192.0.2.0/24"\nblackhole = true\n\n[api]\nhttp = "127.0.0.1:{PORT}"\n')
    with Page(host) as page:
        page.open("/#prefix=192.0.2.0/24")
        wait_for("the RIB manager is there", lambda: "routes/s" in page.stage("rib"), 20, alive=[router.process])
        assert page.stage("reader") == ""
        wait_for("the search is answered", lambda: "192.0.2.0/24" in page.text("#explained"), 20)
        wait_for("the neighbors' tab says why it is empty", lambda: "BGP" in page.text("#neighbors"), 20)


def test_page_on_another_host_asks_for_the_token(host, folder):
    bench = Bench(host, folder)
    with Page(host.feeds, url=f"https://{ADDRESS}:{TLS_PORT}") as page:
        asks = lambda: not page.js("return document.getElementById('access').hidden")  # noqa: E731
        page.open()
        wait_for("the page asks for the token", asks, 20, alive=[bench.router.process])
        assert "api.read-token-file" in page.text("#router")
        for token, then in (("0" * 32, lambda: "is not that of" in page.text("#router") and asks()),
                            (READ_TOKEN, lambda: "AS 65001" in page.text("#router") and not asks())):
            page.js("document.getElementById('token').focus()")
            page.keys(token, Keys.ENTER)
            wait_for("the page has tried it", then, 30, alive=[bench.router.process])
        # The tab knows it after the page is loaded again.
        page.open()
        wait_for("the page reads", lambda: "AS 65001" in page.text("#router"), 20)
        assert not asks() and READ_TOKEN not in page.js("return document.documentElement.outerHTML")
