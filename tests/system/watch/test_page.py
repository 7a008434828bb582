"""test_page.py - the page of a node that trains: its files, its data with the token of `thinwire
web`, and the requests that its listener refuses. BIN: folder of the programs."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import ports

BIN = sys.argv[1]
PATIENCE_S = 60


def tw(*words, status=0):
    """Output of a command of thinwire."""
    done = subprocess.run([f"{BIN}/thinwire", *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def fetch(url, token=None, method="GET", host=None):
    """Status, headers and text of an answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if host:
        headers["Host"] = host
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def make_node(folder):
    """A node with a tiny run and a page."""
    pathlib.Path("text.txt").write_text("\n".join(map(str, range(3000))), encoding="ascii")
    sizes = ("model.layers=1", "model.width=16", "model.heads=2", "model.context=32",
             "train.batch=4", "train.tokens=4m", "train.warmup_tokens=128", "sync.period=6")
    tw("run", "new", "small", "--data", "text.txt", "--out", "run",
       *[word for size in sizes for word in ("--set", size)])
    tw("init", "--dir", "node", "--name", "a", "--run", "run", "--data", "text.txt", "--threads",
       "1", "--listen", "127.0.0.1:0")
    conf = pathlib.Path(folder, "node/node.conf")
    text = conf.read_text(encoding="utf-8")
    port = ports.hold()
    changed = re.sub(r"(?m)^#web = .*$", f"web = 127.0.0.1:{port}", text)
    assert changed != text, "the example configuration has no web"
    return conf, text, changed


def check_files(origin, token):
    """The page and all that it names, and nothing of the node in it."""
    status, headers, html = fetch(origin)
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
    names = set(re.findall(r'(?:href|src)="([^"]+)"', html))
    assert names == {"page.css", "page.js", "icon.svg"}, names
    scripts = ["page.js"]
    for name in scripts:  # those that they import too
        found = re.findall(r"from '\./([^']+)'", fetch(origin + name)[2])
        scripts += [other for other in found if other not in scripts]
    for name in names | set(scripts):
        status, headers, text = fetch(origin + name)
        assert status == 200 and headers["X-Content-Type-Options"] == "nosniff", name
        assert token not in text, name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


def check_data(origin, token):
    """The data of a node that trains: losses and rounds come."""
    end = time.monotonic() + PATIENCE_S
    while True:
        past = json.loads(fetch(f"{origin}v1/history", token)[2])
        if len(past["losses"]["steps"]) > 20 and len(past["rounds"]["outcomes"]) > 5:
            break
        assert time.monotonic() < end, past
        time.sleep(0.05)
    assert set(past["rounds"]["outcomes"]) <= set("mose."), past["rounds"]
    assert past["losses"]["steps"] == sorted(past["losses"]["steps"])
    status = json.loads(fetch(f"{origin}v1/status", token)[2])
    assert status["sentence"].startswith("a trains small alone"), status["sentence"]
    assert status["run"]["name"] == "small"


def check_refusals(origin, token):
    """Requests that it refuses."""
    for path in ("v1/status", "v1/history", "metrics"):
        assert fetch(origin + path)[0] == 401
        assert fetch(origin + path, token[:-1] + ("0" if token[-1] != "0" else "1"))[0] == 401
        assert fetch(origin + path, token, host="evil.example")[0] == 403
    assert fetch(f"{origin}v1/pause", token, "POST")[0] == 403
    assert fetch(f"{origin}v1/status", token, "POST")[0] == 405


def check_token(conf, url):
    """A bookmark outlives the daemon, until another token is wanted."""
    origin, token = url.split("#")
    assert os.stat("node/state/web.token").st_mode & 0o777 == 0o600
    tw("--config", str(conf), "leave")
    tw("--config", str(conf), "start")
    assert tw("--config", str(conf), "web").strip() == url
    assert fetch(f"{origin}v1/status", token)[0] == 200
    fresh = tw("--config", str(conf), "web", "--new").strip()
    assert fresh != url and fresh.startswith(origin), fresh
    assert fetch(f"{origin}v1/status", token)[0] == 401
    assert fetch(f"{origin}v1/status", fresh.split("#")[1])[0] == 200
    os.chmod("node/state/web.token", 0o644)  # others may have read it
    tw("--config", str(conf), "leave")
    tw("--config", str(conf), "start")
    assert tw("--config", str(conf), "web").strip() not in (url, fresh)
    assert os.stat("node/state/web.token").st_mode & 0o777 == 0o600


def main():
    """One node, with and without its page."""
    with tempfile.TemporaryDirectory(prefix="tw_page_") as folder:
        os.chdir(folder)
        conf, plain, changed = make_node(folder)
        try:
            tw("--config", str(conf), "start")
            said = tw("--config", str(conf), "web", status=1)
            assert "the page is off: set `web = 127.0.0.1:9748`" in said, said
            conf.write_text(changed, encoding="utf-8")
            assert plain != changed
            said = tw("--config", str(conf), "reload")
            assert "taken over: api.web" in said, said
            url = tw("--config", str(conf), "web").strip()
            origin, token = url.split("#")
            check_files(origin, token)
            check_data(origin, token)
            check_refusals(origin, token)
            check_token(conf, url)
        finally:
            subprocess.run([f"{BIN}/thinwire", "--config", str(conf), "leave"], check=False,
                           capture_output=True)
    print("the page of a live node: ok")


main()
