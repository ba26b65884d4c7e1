"""Serve a page on this machine to try a model: type or draw a molecule, or upload a table.

The page shows the prediction, its interval and deviation if the model has them, the nearest
training molecule, and the contributions of the atoms. It needs no network, and is reached from this
machine only. A JSON interface has the same answers: POST /api/predict {"smiles": ["CCO"]} and
POST /api/explain {"smiles": "CCO"}. A model of several molecules a row has a field for each of them
on the page, and takes lists: {"smiles": [["CCO", "O"]]}.
"""

import argparse
import json
import math
import socket
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli import add_model, load_molecule_model
from slicegraph.vocabulary import JOINT

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from slicegraph.predict import MoleculePredictor

EPILOG = """\
examples:
  slicegraph serve runs/mine
  slicegraph serve runs/mine --port 9000 --interval 0.8
  curl -H "Content-Type: application/json" -d '{"smiles": ["CCO"]}' \\
    http://127.0.0.1:8000/api/predict
"""
HOST = "127.0.0.1"
MOST_BYTES = 10_000_000  # of a request
MOST_ROWS = 20_000  # of a table
MOST_SMILES, MOST_CHARACTERS = 1_000, 5_000  # in a request, and in each of them
MOST_ATOMS = 150  # of a molecule whose contributions are computed
_ENDINGS = (".csv", ".tsv", ".txt", ".smi", ".sdf", ".xlsx")
_FOLDER = Path(__file__).parent
_FILES = {  # the only files that are sent, with their types
    "/": ("serve.html", "text/html; charset=utf-8"),
    "/serve.js": ("serve.js", "text/javascript; charset=utf-8"),
}
# The page fetches from this server only, and runs no script but those of its own files.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the port and the level of the intervals."""
    add_model(parser)
    add = parser.add_argument
    text = "port of this machine; 0 for any that is free (default: %(default)s)"
    add("--port", type=int, default=8000, metavar="N", help=text)
    text = "probability of the intervals and sets (default: %(default)s)"
    add("--interval", type=float, default=0.9, metavar="P", help=text)
    text = "orders of the atoms for contributions (default: %(default)s)"
    add("--samples", type=int, default=32, metavar="N", help=text)


def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from slicegraph.extras import needs

    with needs("slicegraph serve", "serve"):
        import python_multipart  # noqa: F401 (starlette reads uploads with it)
        import starlette  # noqa: F401
        import uvicorn

    if not 0 <= args.port < 65_536:
        raise ValueError(f"--port {args.port}, expected 0 to 65535")
    model = load_molecule_model(args)
    app = make_app(model, Path(args.model).name, args.interval, args.samples, args.batch_size)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, args.port))
    except OSError as error:
        listening.close()
        raise ValueError(f"--port {args.port} cannot be used: {error.strerror}") from None
    print(
        f"http://{HOST}:{listening.getsockname()[1]} shows {args.model}; Ctrl-C stops", flush=True
    )
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listening])


class BadRequest(Exception):
    """A request that is answered with a status and a reason."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


class Service:
    """The answers of a model, as plain values."""

    def __init__(
        self, model: "MoleculePredictor", name: str, level: float, samples: int, batch_size: int
    ) -> None:
        from slicegraph.predict.predictor import NEAR_COLUMNS

        if model.config.feature_columns:
            listed = ", ".join(model.config.feature_columns)
            raise ValueError(f"{name} also reads the numbers of {listed}; predict for a file")
        self.model, self.name, self.samples, self.batch_size = model, name, samples, batch_size
        self.level: float | None = level
        self.note, self.near = "", model.calibration is not None
        try:
            model.predict_interval(model.example, level)
        except ValueError as error:
            if not 0 < level < 1:
                raise
            self.level, self.note = None, f"no intervals: {error}"
        if self.near and not len(model.calibration.bits):  # type: ignore[union-attr]
            self.near = False
        self.near_columns = NEAR_COLUMNS

    def facts(self) -> dict[str, Any]:
        """What the page shows of the model."""
        from slicegraph.predict.predictor import class_labels, target_labels

        config = self.model.config
        classes = [] if config.task == "regression" else list(class_labels(config))
        return {
            "name": self.name,
            "task": config.task,
            "targets": list(target_labels(config)),
            "unit": config.unit,
            "molecules": list(config.molecule_columns),
            "classes": classes,
            "interval": self.level,
            "models": len(self.model.members),
            "note": self.note,
        }

    def row(self, given: Any) -> str:
        """The text of a row: a SMILES, or a list of the SMILES of a model of several molecules."""
        names = self.model.config.molecule_columns
        if not (names and isinstance(given, list)):
            return _checked(given)
        if len(given) != len(names):
            raise BadRequest(f"a row of {len(given)} SMILES, expected {', '.join(names)}")
        return JOINT.join(_checked(text).strip() for text in given)

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        """The columns of `slicegraph predict` for each text, with null for what is missing."""
        from slicegraph.predict.table import value_cells, value_columns

        options: dict[str, Any] = {"interval": self.level, "near": self.near}
        found = self.model.predict_rows(texts, self.batch_size, **options)
        names = value_columns(self.model.config)
        rows = []
        for number, text in enumerate(texts):
            cells: list[Any] = value_cells(found.values[number], self.model.config, _number)
            more = {name: _plain(column[number]) for name, column in found.more.items()}
            values = dict(zip(names, (None if cell == "" else cell for cell in cells), strict=True))
            said = {"warning": found.warnings[number], "error": found.errors[number]}
            rows.append({"smiles": text} | values | more | said)
        return rows

    def explain(self, text: str, target: str | None) -> dict[str, Any]:
        """The contributions of the atoms to a target (by default the first), and their drawing."""
        from slicegraph.predict.explain import read_row

        try:
            atoms = read_row(text, self.model.config)
        except (ValueError, RuntimeError) as error:
            raise BadRequest(getattr(error, "reason", str(error))) from None
        if len(atoms.symbols) > MOST_ATOMS:
            raise BadRequest(f"{len(atoms.symbols)} atoms, more than {MOST_ATOMS}")
        name = self.facts()["targets"][0] if target is None else target
        named = [name] if self.model.config.target_names else None
        try:
            one = self.model.explain(text, named, self.samples, batch_size=self.batch_size)[0]
        except ValueError as error:
            raise BadRequest(str(error)) from None
        return {
            **{"smiles": one.smiles, "target": name, "quantity": one.quantity},
            **{"prediction": one.prediction, "baseline": one.baseline},
            "atoms": [
                {"symbol": symbol, "contribution": value, "standard_error": error}
                for symbol, value, error in zip(
                    one.symbols, one.contributions.tolist(), one.errors.tolist(), strict=True
                )
            ],
            "svg": one.draw(),
        }

    def drawing(self, text: str) -> dict[str, Any]:
        """The atoms and bonds of a SMILES or an InChI, for the editor."""
        from slicegraph.data.smiles import inchi_to_smiles, is_inchi, parse_smiles
        from slicegraph.drawing import make_drawing

        try:
            return make_drawing(parse_smiles(inchi_to_smiles(text) if is_inchi(text) else text))
        except ValueError as error:
            raise BadRequest(getattr(error, "reason", str(error))) from None

    def smiles(self, atoms: Any, bonds: Any) -> dict[str, str]:
        """The SMILES of what the editor has."""
        from slicegraph.drawing import read_drawing

        try:
            return {"smiles": read_drawing(atoms, bonds)}
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def table(self, content: bytes, ending: str) -> bytes:
        """A table with the columns of `slicegraph predict` added, as CSV."""
        from slicegraph.predict.predictor import more_columns
        from slicegraph.predict.table import PredictedTable, open_whole, predicted_rows

        with tempfile.TemporaryDirectory(prefix="slicegraph-") as folder:
            path = Path(folder, f"table{ending}")
            path.write_bytes(content)
            try:
                table = open_whole(path, config=self.model.config)
                rows = sum(1 for _ in table.source.rows())
                if rows > MOST_ROWS:
                    remedy = "use slicegraph predict"
                    raise BadRequest(f"{rows:,} rows, more than {MOST_ROWS:,}; {remedy}", 413)
                table = open_whole(path, config=self.model.config)
                options: dict[str, Any] = {"interval": self.level, "near": self.near}
                columns = more_columns(
                    self.model.config, len(self.model.members), self.level, self.near
                )
                written = PredictedTable(self.model.config, table, more=columns)
                found = predicted_rows(
                    self.model, table, batch_size=self.batch_size, workers=1, **options
                )
                return b"".join(written.blocks(found))
            except ValueError as error:
                raise BadRequest(str(error).replace(str(path), "the table")) from None


def _number(value: Any) -> Any:
    return float(value)


def _plain(value: Any) -> Any:
    """A cell of a column as JSON has it."""
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else None


def make_app(
    model: "MoleculePredictor",
    name: str = "model",
    level: float = 0.9,
    samples: int = 32,
    batch_size: int = 256,
) -> "Starlette":
    """Make the web application, for any server of ASGI."""
    import anyio
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    service = Service(model, name, level, samples, batch_size)
    limits: dict[str, Any] = {}

    async def computed(what: str, work: Callable[[], Any]) -> Any:
        """Run work in a thread, one of each kind at a time: torch has threads of its own."""
        limiter = limits.setdefault(what, anyio.CapacityLimiter(1))
        return await anyio.to_thread.run_sync(work, limiter=limiter)

    def answered(work: Callable[[Request], Awaitable[Response]]) -> Any:
        async def handler(request: Request) -> Response:
            origin = request.headers.get("origin")
            try:
                if origin is not None and origin != f"http://{request.headers.get('host')}":
                    raise BadRequest("requests of other pages are not answered", 403)
                return await work(request)
            except HTTPException as error:
                return JSONResponse({"error": error.detail}, error.status_code)
            except BadRequest as error:
                return JSONResponse({"error": error.reason}, error.status)
            except Exception:  # one bad request harms no other
                traceback.print_exc()
                return JSONResponse({"error": "the server could not answer this request"}, 500)

        return handler

    async def file(request: Request) -> Response:
        place, kind = _FILES[request.url.path]
        return Response((_FOLDER / place).read_bytes(), media_type=kind)

    async def facts(request: Request) -> Response:
        return JSONResponse(service.facts())

    async def predict(request: Request) -> Response:
        given = (await _json(request)).get("smiles")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts:
            raise BadRequest('expected {"smiles": ["CCO", ...]}')
        if len(texts) > MOST_SMILES:
            raise BadRequest(f"{len(texts):,} SMILES, more than {MOST_SMILES:,}", 413)
        texts = list(map(service.row, texts))
        return JSONResponse({"rows": await computed("predict", partial(service.predict, texts))})

    async def explain(request: Request) -> Response:
        given = await _json(request)
        target = given.get("target")
        if target is not None and target not in service.facts()["targets"]:
            raise BadRequest(f"there is no target {target!r}")
        work = partial(service.explain, service.row(given.get("smiles")), target)
        return JSONResponse(await computed("explain", work))

    async def drawing(request: Request) -> Response:
        work = partial(service.drawing, _checked((await _json(request)).get("smiles")))
        return JSONResponse(await computed("drawing", work))

    async def smiles(request: Request) -> Response:
        given = await _json(request)
        work = partial(service.smiles, given.get("atoms"), given.get("bonds"))
        return JSONResponse(await computed("drawing", work))

    async def table(request: Request) -> Response:
        async with request.form(max_files=1, max_fields=1) as form:
            upload = form.get("file")
            if upload is None or isinstance(upload, str):
                raise BadRequest("expected a file in the field 'file'")
            ending = Path(upload.filename or "").suffix.lower()
            if ending not in _ENDINGS:
                raise BadRequest(f"a file {ending or 'without ending'}; {', '.join(_ENDINGS)}")
            content = await upload.read()
        work = partial(service.table, content, ending)
        headers = {"content-disposition": 'attachment; filename="predicted.csv"'}
        return Response(await computed("table", work), media_type="text/csv", headers=headers)

    posts = {"predict": predict, "explain": explain, "table": table}
    posts |= {"drawing": drawing, "smiles": smiles}
    routes = [Route(path, answered(file)) for path in _FILES]
    routes += [Route("/api/model", answered(facts))]
    routes += [Route(f"/api/{n}", answered(work), methods=["POST"]) for n, work in posts.items()]
    guards = [
        Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
        Middleware(_Guard),
    ]
    return Starlette(routes=routes, middleware=guards)


class _Guard:
    """Refuses large requests while they arrive, and adds the headers of every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        taken = int(length) if length.isdigit() else 0

        async def limited() -> Any:
            nonlocal taken
            message = await receive()
            taken += 0 if length != b"0" else len(message.get("body", b""))
            if taken > MOST_BYTES:
                raise BadRequest(f"more than {MOST_BYTES:,} bytes", 413)
            return message

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self.app(scope, limited, guarded)


async def _json(request: Any) -> dict[str, Any]:
    """The content of a request; other pages cannot send this type without asking first."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise BadRequest("expected the content type application/json", 415)
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise BadRequest("the request is not JSON") from None
    if not isinstance(found, dict):
        raise BadRequest("expected a JSON object")
    return found


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise BadRequest("a SMILES is not text")
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(
            f"a SMILES of {len(text):,} characters, more than {MOST_CHARACTERS:,}", 413
        )
    return text
