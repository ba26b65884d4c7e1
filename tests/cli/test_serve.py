"""`slicegraph serve`: a page and a JSON interface on this machine, for one model."""

import csv
import io
import json
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
    assert site.ask("/openchemlib.js")[0] == 200
    assert b"Redistribution" in site.ask("/openchemlib.LICENSE")[2]


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


def browsed(site, fragment: str, tmp_path: Path) -> str:
    """The page in headless Chromium, after its scripts, as text of HTML."""
    found = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in found if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("Chromium is not installed")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    options += ["--dump-dom", f"--user-data-dir={tmp_path}"]
    url = f"http://{serve.HOST}:{site.port}/#{fragment}"
    done = subprocess.run([program, *options, url], capture_output=True, text=True, timeout=120)
    return done.stdout


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
