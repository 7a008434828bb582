#!/usr/bin/env python3
# page.py - the page in headless Chromium: pictures, accessibility, outside requests, time of a
# drawing.
#
#   tests/browser/page.py BIN [--out FOLDER] [--url LINK]
#
# Asks api_server of BIN, which shows one fixed node, or the node of a LINK that `thinwire web`
# printed. Needs the Python packages playwright and axe-playwright-python, and Chromium of the
# system. Exits with 77 where these are missing.
"""Looks at the page of a node with a browser."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

WIDTHS = {360: 800, 1024: 768, 2560: 1440}
DRAW_MS_MAX = 100
REDRAWS = 2
ROUNDS, PEERS = 10000, 64


def many_peers(url):
    """64 peers in every state, made of those of the fixed node."""
    origin, token = url.split("#")
    request = urllib.request.Request(f"{origin}v1/peers",
                                     headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        peers = json.load(answer)
    rows = []
    for i in range(PEERS):
        row = dict(peers["peers"][i % len(peers["peers"])])
        row["id"] = f"{i * 2654435761 % 2**32:08x}" * 8
        row["id_short"] = row["id"][:8]
        row["out_bytes_per_s"] = 20000 * (i + 1)
        rows.append(row)
    return {**peers, "peers": rows, "alive_peers": PEERS}


def long_history():
    """10,000 rounds and 512 losses."""
    outcomes = "".join("e" if i % 97 == 0 else "o" if i % 11 == 0 else
                       "s" if i < 300 else "." if 4000 < i < 4300 else "m" for i in range(ROUNDS))
    steps = list(range(100, 51300, 100))
    train = [3 + 6 / (1 + i / 20) + 0.05 * ((i * 7919) % 13 - 6) / 6 for i in range(512)]
    live = [value + 0.04 if i % 8 == 7 else None for i, value in enumerate(train)]
    anchor = [value + 0.02 if i % 8 == 7 else None for i, value in enumerate(train)]
    return {"losses": {"steps": steps, "train_nats": train, "live_nats": live,
                       "anchor_nats": anchor},
            "rounds": {"first_round": 71234, "fragments": 3, "outcomes": outcomes}}


class Server:
    """The daemon's API with one fixed node."""

    def __init__(self, bin_folder):
        self.folder = tempfile.TemporaryDirectory()
        socket = f"{self.folder.name}/api.sock"
        self.process = subprocess.Popen([f"{bin_folder}/api_server", socket], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "ready\n"
        self.url = subprocess.run([f"{bin_folder}/thinwire", "web", "--socket", socket], check=True,
                                  capture_output=True, text=True).stdout.strip()

    def close(self):
        """Ends it by the end of its input."""
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.folder.cleanup()


def open_page(browser, url, width, theme, is_many):
    """The page with its first drawing, and the requests that it made."""
    context = browser.new_context(viewport={"width": width, "height": WIDTHS[width]},
                                  color_scheme=theme)
    page = context.new_page()
    seen = {"requests": [], "errors": []}
    page.on("request", lambda request: seen["requests"].append(request.url))
    page.on("console", lambda said: seen["errors"].append(said.text)
            if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen["errors"].append(str(error)))
    if is_many:
        peers = many_peers(url)
        page.route("**/v1/peers", lambda route: route.fulfill(json=peers))
        page.route("**/v1/history", lambda route: route.fulfill(json=long_history()))
    page.goto(url)
    page.wait_for_selector("#content:not([hidden])")
    other = "light" if theme == "dark" else "dark"
    for scheme in (other, theme) * REDRAWS:  # each change draws all of it anew
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(100)
    return context, page, seen


def check(browser, url, width, theme, is_many, out):
    """Draws one page. Returns its faults."""
    faults = []
    context, page, seen = open_page(browser, url, width, theme, is_many)
    where = f"{width}-{theme}{'-many' if is_many else ''}"
    if out:
        page.screenshot(path=f"{out}/{where}.png", full_page=True)
    origin = url.split("#")[0]
    faults += [f"request to {other}" for other in seen["requests"] if not other.startswith(origin)]
    faults += [f"console: {text}" for text in seen["errors"]]
    if page.evaluate("location.hash + document.cookie + Object.keys(localStorage).join()"):
        faults.append("the token stays in the address, a cookie or a store of the site")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        faults.append("the page scrolls sideways")
    draws_ms = page.evaluate("performance.getEntriesByName('draw-all').map((e) => e.duration)")
    print(f"{where}: drawn in {', '.join(f'{ms:.1f}' for ms in draws_ms)} ms")
    if min(draws_ms) > DRAW_MS_MAX:  # other processes may hold up one of them
        faults.append(f"drawn in {min(draws_ms):.1f} ms")
    for violation in Axe().run(page).response["violations"]:
        nodes = [node["html"][:120] for node in violation["nodes"][:3]]
        faults.append(f"axe {violation['id']}: {violation['help']}: {json.dumps(nodes)}")
    context.close()
    return [f"{where}: {fault}" for fault in faults]


def check_lock(browser, url):
    """Without the token, and with a wrong one, the page tells nothing of the node."""
    faults = []
    for link in (url.split("#")[0], url[:-8] + "00000000"):
        page = browser.new_page()
        page.goto(link)
        page.wait_for_selector("#locked:not([hidden])")
        if page.is_visible("#content") or page.text_content("#tiles"):
            faults.append(f"{link}: shows content")
        page.close()
    return faults


def main():
    """One fault a line; exit status 1 if there is any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--url")
    args = parser.parse_args()
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    server = None if args.url else Server(args.bin)
    faults = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium",
                                             args=["--no-sandbox"])
        url = args.url or server.url
        for width in WIDTHS:
            for theme in ("light", "dark"):
                for is_many in (False, True) if server else (False,):
                    faults += check(browser, url, width, theme, is_many, args.out)
        faults += check_lock(browser, url)
        browser.close()
    if server:
        server.close()
    print("\n".join(faults) or "no faults")
    return 1 if faults else 0


sys.exit(main())
