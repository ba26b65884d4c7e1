"""`slicegraph serve`: a page and a JSON interface on this machine, for one model."""

import csv
import io
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from support.small_models import small_model
from support.tiny_run import smiles, tiny_run

import slicegraph
from slicegraph.cli import main, serve

for name in ("starlette", "python_multipart"):
    pytest.importorskip(name)
uvicorn = pytest.importorskip("uvicorn")

LEVEL = 0.5
HOSTILE = "<img src=x onerror=alert(1)>"
TEXTS = ["CCO", "C1CC", "CNC", "", "CNO"]


class Site:
    """A server in a thread of this process."""

    def __init__(self, app) -> None:
        self.socket = socket.socket()
        self.socket.bind((serve.HOST, 0))
        self.port = self.socket.getsockname()[1]
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def ask(self, path, content=None, **headers) -> tuple[int, dict, bytes]:
        """Status, headers and body of an answer; content is sent as JSON, or as it is if bytes."""
        connection = HTTPConnection(serve.HOST, self.port, timeout=60)
        body = content if content is None or isinstance(content, bytes) else json.dumps(content)
        kind = {} if content is None else {"Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET" if content is None else "POST", path, body, kind | named)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return found

    def upload(self, content: bytes, name: str = "table.csv") -> tuple[int, dict, bytes]:
        head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = head.encode() + content + b"\r\n--x--\r\n"
        return self.ask("/api/table", body, Content_Type="multipart/form-data; boundary=x")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("run"), epochs=1).folder


@pytest.fixture(scope="module")
def model(run):
    return slicegraph.load(run)


@pytest.fixture(scope="module")
def site(model):
    found = Site(serve.make_app(model, "tiny", LEVEL, samples=8))
    yield found
    found.stop()


def error_of(answer) -> str:
    return json.loads(answer[2])["error"]


def test_the_page_asks_no_other_machine(site):
    status, headers, page = site.ask("/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "script-src 'self';" in headers["content-security-policy"]
    sent = page + site.ask("/serve.js")[2]
    assert not re.search(rb"https?://", sent)


def test_the_facts_of_the_model(site):
    facts = json.loads(site.ask("/api/model")[2])
    assert facts["targets"] == ["gap"]
    assert (facts["name"], facts["task"], facts["interval"]) == ("tiny", "regression", LEVEL)


def test_the_answers_are_those_of_the_model(site, model):
    status, _, body = site.ask("/api/predict", {"smiles": TEXTS})
    rows = json.loads(body)["rows"]
    found = model.predict_rows(TEXTS, interval=LEVEL, near=True)
    assert status == 200
    for number, row in enumerate(rows):
        assert row["smiles"] == TEXTS[number]
        assert row["error"] == found.errors[number]
        if row["error"]:
            assert row["gap_pred"] is None
            continue
        assert row["gap_pred"] == pytest.approx(float(found.values[number, 0]))
        for name, column in found.more.items():
            assert row[name] == pytest.approx(column[number])
    assert json.loads(site.ask("/api/predict", {"smiles": "CCO"})[2])["rows"][0] == rows[0]


def test_contributions_add_up_and_are_drawn(site, model):
    status, _, body = site.ask("/api/explain", {"smiles": "CNCO", "target": "gap"})
    found = json.loads(body)
    total = found["baseline"] + sum(atom["contribution"] for atom in found["atoms"])
    assert status == 200
    assert total == pytest.approx(float(model.predict("CNCO")[0]), abs=1e-4)
    assert [atom["symbol"] for atom in found["atoms"]] == list("CNCO")
    assert found["svg"].startswith("<?xml")


def test_a_table_comes_back_as_predict_writes_it(site, run, tmp_path):
    table, out = tmp_path / "table.csv", tmp_path / "out.csv"
    table.write_text("name,smiles\n" + "".join(f"m{n},{text}\n" for n, text in enumerate(TEXTS)))
    options = ["--out", str(out), "--interval", str(LEVEL), "--nearest"]
    with pytest.raises(SystemExit):
        main(["predict", str(run), str(table), *options])
    status, headers, body = site.upload(table.read_bytes(), "../../../etc/passwd.CSV")
    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="predicted.csv"'
    assert body == out.read_bytes()
    assert [row["error"] for row in csv.DictReader(io.StringIO(body.decode()))][1] != ""


def test_two_hundred_requests_at_once_and_bad_ones_harm_no_other(site, model):
    texts = smiles(200)
    expected = model.predict(texts)

    def ask(number: int):
        if number % 50 == 7:
            return site.ask("/api/predict", b"{broken" if number % 100 == 7 else {"smiles": 3})
        return site.ask("/api/predict", {"smiles": [texts[number]]})

    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(ask, range(200)))
    for number, (status, _, body) in enumerate(answers):
        if number % 50 == 7:
            assert status == 400
            continue
        (row,) = json.loads(body)["rows"]
        assert status == 200
        assert row["gap_pred"] == pytest.approx(float(expected[number]), abs=1e-5)


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        ({}, 400, "expected"),
        ([], 400, "expected a JSON object"),
        (b"[" * 100_000, 400, "not JSON"),
        ({"smiles": []}, 400, "expected"),
        ({"smiles": [3]}, 400, "a SMILES is not text"),
        ({"smiles": ["C"] * 1001}, 413, "1,001 SMILES, more than 1,000"),
        ({"smiles": "C" * 5001}, 413, "5,001 characters"),
    ],
    ids=str,
)
def test_a_bad_request_has_a_reason(site, content, status, reason):
    answer = site.ask("/api/predict", content)
    assert answer[0] == status
    assert reason in error_of(answer)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"smiles": "C1CC"}, "unclosed ring"),
        ({"smiles": "C" * 151}, "151 atoms, more than 150"),
        ({"smiles": "C", "target": "x"}, "there is no target 'x'"),
        ({"smiles": "C", "target": ["gap"]}, "there is no target"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_explained_has_a_reason(site, content, reason):
    answer = site.ask("/api/explain", content)
    assert answer[0] == 400
    assert reason in error_of(answer)


def drawn(elements, bonds=()) -> dict:
    """A drawing as the page sends it: "C", or ("N", 1) with a charge; bonds as (0, 1, 2)."""
    pairs = [one if isinstance(one, tuple) else (one, 0) for one in elements]
    return {
        "atoms": [{"element": element, "charge": charge} for element, charge in pairs],
        "bonds": [dict(zip(("begin", "end", "order"), bond, strict=True)) for bond in bonds],
    }


RING = [(n, (n + 1) % 6, 1 + n % 2) for n in range(6)]


@pytest.mark.parametrize(
    ("content", "smiles"),
    [
        (drawn("C" * 6, RING), "c1ccccc1"),
        (drawn(["C", ("N", 1)], [(0, 1, 1)]), "C[NH3+]"),
        (drawn(["C", "C", ("O", -1), "O"], [(0, 1, 1), (1, 2, 1), (1, 3, 2)]), "CC(=O)[O-]"),
        (drawn(["C", "N"], [(0, 1, 3)]), "C#N"),
        (drawn(["H", "C", "Cl"], [(0, 1, 1), (1, 2, 1)]), "CCl"),
        (drawn([("Na", 1), ("Cl", -1)]), "[Cl-].[Na+]"),
        (
            {"atoms": [{"element": "C"}, {"element": "Si"}], "bonds": [{"begin": 1, "end": 0}]},
            "C[SiH3]",
        ),
        (drawn("C" * 150, [(n, n + 1, 1) for n in range(149)]), "C" * 150),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "drawn",
)
def test_a_drawing_has_a_smiles(site, content, smiles):
    status, _, body = site.ask("/api/smiles", content)
    assert (status, json.loads(body)) == (200, {"smiles": smiles})


STAR = [(0, n, 1) for n in range(1, 6)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (drawn("CCCCCC", STAR), "atom 1: carbon with 5 bonds"),
        (drawn("ONC", [(2, 0, 2), (2, 1, 3)]), "atom 3: carbon with 5 bonds"),
        (drawn([("N", 1), *"CCCCC"], STAR), "atom 1: nitrogen of charge +1 with 5 bonds"),
        (drawn(["C", "Xx"]), "atom 2: there is no element 'Xx'"),
        (drawn("c"), "atom 1: there is no element 'c'"),
        (drawn("*"), "atom 1: there is no element '*'"),
        (drawn([HOSTILE]), "atom 1: there is no element '<img"),
        (drawn([3]), "atom 1: there is no element '3'"),
        (drawn([("C", 10**30)]), "atom 1: a charge of 1000"),
        (drawn([("C", True)]), "atom 1: a charge of True"),
        (drawn("C" * 151), "151 atoms, more than 150"),
        (drawn("C" * 30, [(0, 1, 1)] * 301), "301 bonds, more than 300"),
        (drawn(""), "no atoms"),
        (drawn("CC", [(0, 2, 1)]), "bond 1: there is no atom 2"),
        (drawn("CC", [(-1, 0, 1)]), "bond 1: there is no atom -1"),
        (drawn("CC", [(0, 1.0, 1)]), "bond 1: there is no atom 1.0"),
        (drawn("CC", [(0, 1, 4)]), "bond 1: an order of 4"),
        (drawn("CC", [(0, 1, [])]), "bond 1: an order of []"),
        (drawn("CC", [(1, 1, 1)]), "bond 1: from atom 2 to itself"),
        (drawn("CC", [(0, 1, 1), (1, 0, 2)]), "bond 2: atoms 2 and 1 have a bond already"),
        ({"atoms": ["C"], "bonds": []}, "atom 1: expected an object with element, charge"),
        ({"atoms": [{"element": "C"}], "bonds": [3]}, "bond 1: expected an object with begin"),
        ({"atoms": "C", "bonds": []}, "expected a list of atoms"),
        ({}, "expected a list of atoms"),
        ([], "expected a JSON object"),
        (b"{broken", "the request is not JSON"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "drawn",
)
def test_a_bad_drawing_has_a_reason(site, content, reason):
    answer = site.ask("/api/smiles", content)
    assert answer[0] == 400
    assert reason in error_of(answer)


@pytest.mark.parametrize("path", ["/api/smiles", "/api/drawing"])
def test_the_editor_has_the_limits_of_the_site(site, path, monkeypatch):
    monkeypatch.setattr(serve, "MOST_BYTES", 1000)
    content = drawn("C") | {"smiles": "C"}
    assert site.ask(path, content)[0] == 200
    assert site.ask(path, content | {"more": "x" * 1000})[0] == 413
    assert site.ask(path, content, Origin="http://evil.example")[0] == 403
    assert site.ask(path, content, Host="evil.example")[0] == 400
    assert site.ask(path, content, Content_Type="text/plain")[0] == 415


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("CC(=O)Oc1ccccc1C(=O)O", True),
        ("c1ccc2[nH]ccc2c1", True),
        ("C[N+](C)(C)CC(=O)[O-]", True),
        ("C" * 150, True),
        ("InChI=1S/CH4O/c1-2/h2H,1H3", True),
        ("C[C@H](N)C(=O)O", False),
        ("C/C=C/C", False),
        ("[13CH4]", False),
        ("[CH3]", False),
        ("*C", False),
    ],
)
def test_a_text_is_drawn_and_read_back(site, text, complete):
    status, _, body = site.ask("/api/drawing", {"smiles": text})
    found = json.loads(body)
    assert status == 200
    assert found["complete"] is complete
    if complete:
        back = json.loads(site.ask("/api/smiles", found)[2])["smiles"]
        assert canonical(back) == canonical(text)
    places = np.array([[atom["x"], atom["y"]] for atom in found["atoms"]])
    gaps = [np.linalg.norm(places[bond["begin"]] - places[bond["end"]]) for bond in found["bonds"]]
    assert np.allclose(gaps, 1, atol=0.35)


def canonical(text: str) -> str:
    found = Chem.MolFromInchi(text) if text.startswith("InChI") else Chem.MolFromSmiles(text)
    return Chem.MolToSmiles(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("C1CC", "unclosed ring"),
        ("C" * 151, "151 atoms, more than 150"),
        ("N->[Fe]", "a bond of type DATIVE cannot be drawn"),
        ("", "no atoms"),
        (3, "a SMILES is not text"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_cannot_be_drawn_has_a_reason(site, text, reason):
    answer = site.ask("/api/drawing", {"smiles": text})
    assert answer[0] == 400
    assert reason in error_of(answer)


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (b"smiles\nC\n", "table.exe", "a file .exe"),
        (b"smiles\nC\n", "table", "a file without ending"),
        (b"", "table.csv", "empty"),
        (b"\x00\x01\x02", "table.xlsx", ""),
        (b"smiles,gap_pred\nC,1\n", "table.csv", "already has a column 'gap_pred'"),
    ],
)
def test_a_bad_table_has_a_reason_without_a_path(site, content, name, reason):
    answer = site.upload(content, name)
    assert answer[0] == 400
    assert reason in error_of(answer)
    assert "/tmp" not in error_of(answer)


def test_large_requests_are_refused(site, monkeypatch):
    monkeypatch.setattr(serve, "MOST_BYTES", 1000)
    monkeypatch.setattr(serve, "MOST_ROWS", 20)
    assert site.ask("/api/predict", {"smiles": "C" * 2000})[0] == 413
    assert site.upload(b"smiles\n" + b"C\n" * 600)[0] == 413
    answer = site.upload(b"smiles\n" + b"C\n" * 21)
    assert answer[0] == 413
    assert "21 rows, more than 20" in error_of(answer)
    chunks = HTTPConnection(serve.HOST, site.port, timeout=60)  # without a length
    kind = {"Content-Type": "application/json"}
    chunks.request("POST", "/api/predict", iter([b" " * 900] * 3), kind, encode_chunked=True)
    assert chunks.getresponse().status == 413
    chunks.close()


def test_other_pages_hosts_and_types_are_refused(site):
    content = {"smiles": "C"}
    assert site.ask("/api/predict", content, Origin="http://evil.example")[0] == 403
    own = f"http://{serve.HOST}:{site.port}"
    assert site.ask("/api/predict", content, Origin=own)[0] == 200
    assert site.ask("/api/model", Host="evil.example")[0] == 400
    assert site.ask("/api/predict", content, Content_Type="text/plain")[0] == 415


@pytest.mark.parametrize("path", ["/serve.py", "/../serve.py", "/etc/passwd", "//etc/passwd"])
def test_no_other_file_is_sent(site, path):
    assert site.ask(path)[0] == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "binary", "target_names": ("a", "b")},
        {"task": "multiclass", "num_classes": 3, "class_names": ("x", "y", "z")},
        {"num_targets": 2},
    ],
    ids=lambda fields: fields.get("task", "two"),
)
def test_models_without_intervals_and_of_classes_are_served(fields):
    names = fields.get("target_names", ())
    made = small_model(**fields, **({"num_targets": 2} if names else {}))
    service = serve.Service(made, "one", 0.9, 8, 256)
    assert "no intervals" in service.note
    facts, (row,) = service.facts(), service.predict(["CCO"])
    for target in facts["targets"]:
        assert row[f"{target}_pred"] is not None
        found = service.explain("CCO", target)
        total = found["baseline"] + sum(atom["contribution"] for atom in found["atoms"])
        assert np.isclose(total, found["prediction"])
    json.dumps([facts, row], allow_nan=False)


def test_the_command_serves_this_machine_only(run, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: seen.extend(sockets))
    assert main(["serve", str(run), "--port", "0", "--interval", "0.5"]) == 0
    (listening,) = seen
    assert listening.getsockname()[0] == "127.0.0.1"
    assert f"http://127.0.0.1:{listening.getsockname()[1]}" in capsys.readouterr().out
    listening.listen()
    port = str(listening.getsockname()[1])
    assert main(["serve", str(run), "--port", port]) == 2
    assert f"--port {port} cannot be used" in capsys.readouterr().err
    listening.close()
    assert main(["serve", str(run), "--interval", "1.5"]) == 2
    assert main(["serve", str(run), "--port", "70000"]) == 2


def chromium() -> str:
    found = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in found if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("Chromium is not installed")
    return program


def browsed(site, fragment: str, tmp_path: Path) -> str:
    """The page in headless Chromium, after its scripts, as text of HTML."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    options += ["--dump-dom", f"--user-data-dir={tmp_path}"]
    url = f"http://{serve.HOST}:{site.port}/#{fragment}"
    done = subprocess.run([chromium(), *options, url], capture_output=True, text=True, timeout=120)
    return done.stdout


class Browser:
    """A page in headless Chromium that is driven by its DevTools protocol through two pipes."""

    def __init__(self, site, folder: Path, width: int = 1100, height: int = 900) -> None:
        (read, self.write), (self.read, write) = os.pipe(), os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        options += [f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"]
        swap = [(os.POSIX_SPAWN_DUP2, read, 103), (os.POSIX_SPAWN_DUP2, write, 104)]
        swap += [(os.POSIX_SPAWN_DUP2, 103, 3), (os.POSIX_SPAWN_DUP2, 104, 4)]
        program = chromium()
        self.process = os.posix_spawn(program, [program, *options], os.environ, file_actions=swap)
        os.close(read)
        os.close(write)
        self.number, self.rest, self.session = 0, b"", {}
        url = f"http://{serve.HOST}:{site.port}/"
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = {
            "sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)[
                "sessionId"
            ]
        }
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Page.navigate", url=url)
        self.until("document.querySelectorAll('#tools button').length > 10")

    def ask(self, method: str, **options) -> dict:
        self.number += 1
        content = {"id": self.number, "method": method, "params": options} | self.session
        os.write(self.write, json.dumps(content).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                got = os.read(self.read, 1 << 16)
                assert got, "Chromium ended"
                self.rest += got
            message, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(message)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def value(self, script: str):
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str) -> None:
        end = time.monotonic() + 60
        while not self.value(script):
            assert time.monotonic() < end, (script, self.value("document.body.innerText"))
            time.sleep(0.05)

    def shows(self, text: str) -> None:
        self.until(f"document.getElementById('smiles').value === {json.dumps(text)}")

    def choose(self, name: str) -> None:
        button = f"""document.querySelector('#tools [aria-label="{name}"]')"""
        middle = self.value(
            f"(() => {{ const b = {button}.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.mouse(middle, middle)

    def mouse(self, start, end=None) -> None:
        """Press at a place of the window, move and release."""
        for kind, (x, y) in [
            ("Pressed", start),
            ("Moved", end or start),
            ("Released", end or start),
        ]:
            button = {"button": "left", "clickCount": 1, "buttons": int(kind != "Released")}
            self.ask("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button)

    def draw(self, start, end=None) -> None:
        """The same at places of the editor, from its middle."""
        x, y = self.value(
            "(() => { const b = document.getElementById('editor').getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.mouse(*[(x + place[0], y + place[1]) for place in (start, end or start)])

    def touch(self, start) -> None:
        x, y = self.value(
            "(() => { const b = document.getElementById('editor').getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        points = [{"x": x + start[0], "y": y + start[1]}]
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=points)
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def stop(self) -> None:
        self.ask("Browser.close")
        os.waitpid(self.process, 0)
        os.close(self.read)
        os.close(self.write)


@pytest.fixture
def browser(site, tmp_path):
    found = Browser(site, tmp_path / "chromium")
    yield found
    found.stop()


def test_a_molecule_is_drawn_by_pointer(browser, model):
    browser.draw((0, 0))
    browser.shows("C")
    browser.draw((0, 0), (40, 5))  # a bond to a new atom, which snaps to 30 degrees
    browser.shows("CC")
    browser.draw((17, 10))
    browser.shows("C=C")  # a click on the bond
    browser.choose("element O")
    browser.draw((35, 20))
    browser.shows("C=O")
    value = float(f"{model.predict('C=O')[0]:.4g}")
    browser.until(f"document.querySelector('.value')?.innerText.startsWith('{value:g}')")
    browser.choose("charge +1")
    browser.draw((35, 20))
    browser.shows("C=[OH+]")
    browser.choose("undo")
    browser.shows("C=O")
    browser.choose("erase an atom or a bond")
    browser.draw((35, 20))
    browser.shows("C")
    browser.choose("clear")
    browser.shows("")
    browser.choose("benzene")
    browser.draw((0, 0))
    browser.shows("c1ccccc1")
    browser.draw((35, 0))  # along a bond
    browser.shows("c1ccc2ccccc2c1")
    browser.choose("clear")
    browser.touch((-30, 0))
    browser.shows("c1ccccc1")


def test_a_typed_molecule_is_drawn_and_changed_and_a_wrong_atom_is_marked(browser):
    browser.value("document.getElementById('smiles').focus()")
    browser.ask("Input.insertText", text="C[C@H](F)Cl")
    browser.until("document.querySelectorAll('#editor line').length === 3")
    assert "stereochemistry" in browser.value("document.getElementById('lost').innerText")
    browser.value("document.getElementById('smiles').select()")
    browser.ask("Input.insertText", text="C")
    browser.until("document.querySelectorAll('#editor text').length === 1")
    assert browser.value("document.getElementById('lost').hidden")
    browser.value("document.getElementById('other').focus()")
    browser.ask("Input.insertText", text="si")
    browser.draw((0, 0))
    browser.shows("[SiH4]")
    browser.choose("element F")
    browser.draw((0, 0))
    browser.shows("F")
    browser.choose("triple bond")
    browser.draw((0, 0))
    browser.until("document.querySelectorAll('#editor .wrong').length === 1")
    error = browser.value("document.getElementById('error').innerText")
    assert error == "atom 1: fluorine with 3 bonds"
    browser.value("document.getElementById('smiles').focus()")
    browser.ask("Input.insertText", text="C1CC")
    browser.until("document.getElementById('lost').innerText === 'The text cannot be drawn.'")
    assert browser.value("document.querySelectorAll('#editor text').length") == 0
    for _ in range(2):
        browser.choose("undo")
    browser.shows("F")


@pytest.mark.slow
def test_a_browser_shows_prediction_neighbour_and_picture(site, model, tmp_path):
    page = browsed(site, "smiles=CNCO", tmp_path)
    value = float(f"{model.predict('CNCO')[0]:.4g}")
    assert f'<p class="value">{value:g}<small>' in page
    assert "<dt>50 % interval</dt>" in page
    assert "<dt>nearest training molecule</dt>" in page
    assert 'src="data:image/svg+xml' in page
    assert 'alt="contributions of the atoms of CNCO"' in page
    assert "from the atoms" in page
    assert '<div id="answer">' in page


@pytest.mark.slow
def test_a_browser_shows_hostile_names_as_text_and_a_bad_smiles_with_its_reason(tmp_path):
    made = small_model(target_names=(HOSTILE,), unit=HOSTILE)
    site = Site(serve.make_app(made, HOSTILE, samples=8))
    try:
        page = browsed(site, "smiles=CO", tmp_path / "a")
        assert "&lt;img src=x onerror=alert(1)&gt;" in page
        assert HOSTILE not in re.sub(r"<title>.*?</title>", "", page)
        page = browsed(site, "smiles=C1CC", tmp_path / "b")
        assert '<p class="problem" id="error">unclosed ring</p>' in page
    finally:
        site.stop()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A model of two molecules a row."""
    folder = tmp_path_factory.mktemp("pairs")
    texts = smiles(40)
    rows = [
        f"{a},{b},{a.count('N') - b.count('N')}" for a, b in zip(texts, texts[::-1], strict=True)
    ]
    (folder / "table.csv").write_text("\n".join(["solute,solvent,gap", *rows]))
    run = tiny_run(folder, smiles=("solute", "solvent"), epochs=1)
    return slicegraph.load(run.folder)


@pytest.fixture(scope="module")
def site_of_pairs(pairs):
    found = Site(serve.make_app(pairs, "pairs", LEVEL, samples=8))
    yield found
    found.stop()


def test_a_row_of_several_molecules_is_a_list(site_of_pairs, pairs):
    _, _, body = site_of_pairs.ask(
        "/api/predict", {"smiles": [["CCO", "CN"], "CN>>CCO", ["C", ""]]}
    )
    first, second, bad = json.loads(body)["rows"]
    expected = pairs.predict([("CCO", "CN"), ("CN", "CCO")]).tolist()
    assert [first["gap_pred"], second["gap_pred"]] == pytest.approx(expected, abs=1e-5)
    assert bad["error"] == "solvent = '': no SMILES"
    _, _, body = site_of_pairs.ask("/api/explain", {"smiles": ["CCO", "CN"]})
    assert [atom["symbol"] for atom in json.loads(body)["atoms"]] == list("CCOCN")
    for content in ({"smiles": [["CCO"]]}, {"smiles": [["CCO", "C", "C"]]}):
        assert "expected solute, solvent" in error_of(site_of_pairs.ask("/api/predict", content))
    assert "not text" in error_of(site_of_pairs.ask("/api/predict", {"smiles": [["CCO", 3]]}))


def test_the_page_has_a_field_for_each_molecule(site_of_pairs, pairs, tmp_path):
    browser = Browser(site_of_pairs, tmp_path / "chromium")
    try:
        browser.until("document.getElementById('smiles-1') !== null")
        names = "[...document.querySelectorAll('.card h2')].slice(0, 2).map((x) => x.textContent)"
        assert browser.value(names) == ["solute", "solvent"]
        typed = (
            "((id, text) => { const field = document.getElementById(id); field.focus();"
            " field.value = text; field.dispatchEvent(new Event('input')); })"
        )
        browser.value(f"{typed}('smiles', 'CNC')")
        browser.until("!document.getElementById('empty').hidden")  # the solvent is missing
        browser.value(f"{typed}('smiles-1', 'CO')")
        value = float(f"{pairs.predict([('CNC', 'CO')])[0]:.4g}")
        browser.until(f"document.querySelector('.value')?.innerText.startsWith('{value:g}')")
        browser.until("document.querySelectorAll('#editor line').length === 1")  # of the solvent
        browser.until("document.getElementById('picture').alt.endsWith('CNC>>CO')")
        browser.value("document.getElementById('smiles').focus()")
        browser.until("document.querySelectorAll('#editor line').length === 2")
        browser.choose("clear")
        browser.shows("")
        assert browser.value("document.getElementById('smiles-1').value") == "CO"
    finally:
        browser.stop()
