"""What the page asks for, over HTTP: plans, advice, checks, runs. Every answer is what a command would say.

Whoever reaches the studio can start processes as its user. So every request but those for the page's own files needs
the token that the studio prints when it starts, in a header of its own: a web page elsewhere cannot send that, nor can
another user of this machine. And on this machine's own address only its own names are answered.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Body, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from data_tools.formats.errors import DataError
from data_tools.language import translated
from launch.errors import UserError
from launch.serving.request import shortened
from launch.serving.rest import PAGE as CHAT
from launch.serving.rest import PAGE_HEADERS
from launch.serving.rest_requests import LOOPBACK, BodyLimit, FewKeys, Text, first_error, right_key, unless_gone
from launch.studio.data_view import data_of
from launch.studio.needs import Division, conversion, demo, download, forget, kept, needs_of, uploads
from launch.studio.planning import RecipeChoice, advice_of, checks_of, layouts_of, offered, plan_of
from launch.studio.runs import RUNNING, RunNote, Runs
from launch.studio.slow_calls import SlowCalls
from launch.studio.trying import Trial, add_requests

PAGE = Path(__file__).parent / "page"
LARGEST_BODY = 1 << 20  # bytes
SMALL = 1 << 13  # bytes of answers that are not compressed
UPLOAD = "/api/upload"
# Keys of answers whose texts are messages.
MESSAGES = {"found", "fix", "about", "verdict", "notes", "title", "result", "speed", "duration", "subject", "summary"}
MESSAGES |= {"said", "unused", "template", "reason"}  # of a task, the others of data


def _in_chinese(answer, is_message: bool = False):
    """Return an answer with its messages translated."""
    if isinstance(answer, dict):
        return {key: _in_chinese(value, key in MESSAGES) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [_in_chinese(value, is_message) for value in answer]
    return translated(answer) if is_message and isinstance(answer, str) else answer


def _language(accept_language: Annotated[str, Header()] = "") -> Callable:
    """Return the function that translates an answer for the page."""
    return _in_chinese if accept_language.lower().startswith("zh") else lambda answer: answer


Language = Annotated[Callable, Depends(_language)]
Given = Annotated[dict[Text, Text], FewKeys, Body()]


def _choice(given: Given) -> RecipeChoice:
    return RecipeChoice.read(given)


Chosen = Annotated[RecipeChoice, Depends(_choice)]  # read in a thread
Divided = Annotated[Division, Depends()]


def make_app(token: str, runs: Runs, trial: Trial, slow: SlowCalls, local: bool = True) -> FastAPI:
    """Return the application of the studio.

    Args:
        token: Required in each request.
        runs: The known runs.
        trial: The server of Try.
        slow: Computes advice and layouts, which take seconds.
        local: Only requests for this machine's own names are answered (DNS rebinding).
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=SMALL, compresslevel=5)  # inside, where it sees whole answers
    app.add_middleware(BodyLimit, largest=LARGEST_BODY, unbounded=UPLOAD)  # `kept` bounds uploads
    if local:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK)
    app.add_exception_handler(UserError, _mistake)
    app.add_exception_handler(DataError, _mistake)
    app.add_exception_handler(OSError, _mistake)  # a path that the system refuses, a full disk
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=499))  # amid an upload
    app.include_router(api_of(token, runs, trial, slow))

    @app.middleware("http")
    async def with_headers(request: Request, call_next: Callable) -> Response:
        reply = await call_next(request)
        reply.headers.update(PAGE_HEADERS)
        return reply

    @app.get("/")
    def page() -> Response:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE))
    app.mount("/chat", StaticFiles(directory=CHAT))
    return app


def api_of(token: str, runs: Runs, trial: Trial, slow: SlowCalls) -> APIRouter:
    """Return the routes of all requests but the page's own files."""
    api = APIRouter(prefix="/api", dependencies=[Depends(_require(token))])
    add_requests(api, trial, runs)

    @api.get("/offered")
    def what_is_offered(language: Language) -> dict:
        return language(offered())

    @api.post("/plan")
    def plan(choice: Chosen, language: Language) -> dict:
        return language(plan_of(choice)) | {"needs": needs_of(choice)}

    @api.post("/advice")
    async def advice(choice: Chosen, language: Language, request: Request) -> list:
        return language(await unless_gone(request, slow(advice_of, choice)) or [])

    @api.post("/layouts")
    async def layouts(choice: Chosen, language: Language, request: Request) -> list:
        return language(await unless_gone(request, slow(layouts_of, choice)) or [])

    @api.post("/checks")
    def checks(choice: Chosen, language: Language) -> list:
        return language(checks_of(choice))

    @api.post("/data")
    def data(choice: Chosen, language: Language) -> dict:
        return language(data_of(choice))

    @api.get("/runs")
    def list_runs(language: Language) -> list:
        return [row | language({"reason": row["reason"]}) for row in runs.list()]

    @api.get("/records")
    def records(output: str, offset: Annotated[int, Query(ge=0)] = 0, identity: str = "") -> dict:
        return runs.records(output, offset, identity)

    @api.get("/log")
    def log(output: str, of: str) -> str:
        return runs.log(output, of)

    @api.post("/start/{action}")
    def start(action: str, choice: Chosen) -> str:
        # What the command would refuse a moment later, in a log.
        found = plan_of(choice)["faults"]
        if not found and action == "run":
            found = [one for one in checks_of(choice) if not one["ok"]]
        if found:
            raise UserError("; ".join(f"{one.get('subject', '')} {one['found']}".strip() for one in found))
        return runs.start(choice, action)

    @api.post("/resume")
    def resume(output: Annotated[Text, Body(embed=True)]) -> str:
        return runs.resume(output)

    @api.post("/note")
    def annotate(note: RunNote) -> None:
        runs.annotate(note)

    @api.post("/download")
    def fetch(model: Annotated[Text, Body()], hub: Annotated[Text, Body()] = "") -> str:
        return runs.perform(download(model, hub))

    @api.post("/demo")
    def make_demo(folder: Annotated[Text, Body(embed=True)]) -> str:
        return runs.perform(demo(folder))

    @api.post("/divide")
    def divide(choice: Chosen, division: Divided) -> str:
        file = Path(choice.variables.get("DATA", ""))
        if not file.is_file():
            raise UserError(f"DATA: found {str(file)!r}, which is no file. Name one.")
        return runs.perform(conversion(file, choice, division))

    @api.put("/upload")
    async def upload(request: Request, recipe: str, name: str, division: Divided) -> str:
        choice = RecipeChoice.read({"recipe": recipe})
        file = await kept(name, request.stream(), int(request.headers.get("content-length", 0)))
        return await run_in_threadpool(lambda: runs.perform(conversion(file, choice, division)))

    @api.get("/uploads")
    def list_uploads() -> list:
        return uploads()

    @api.post("/forget")
    def remove(name: Annotated[Text, Body(embed=True)]) -> None:
        forget(name, [row["command"] for row in runs.list() if row["state"] == RUNNING])

    @api.post("/save")
    def save(output: Annotated[Text, Body(embed=True)]) -> None:
        runs.save(output)

    @api.post("/stop")
    def stop(name: Annotated[Text, Body(embed=True)]) -> None:
        runs.stop(name)

    return api


def _require(token: str) -> Callable:
    def check(authorization: Annotated[str, Header()] = "") -> None:
        if not right_key(authorization, token):
            raise HTTPException(401, "the token that the studio printed must be sent: Authorization: Bearer TOKEN")

    return check


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": first_error(error)[1]}, 422)


async def _mistake(request: Request, error: Exception) -> Response:
    chinese = request.headers.get("accept-language", "").lower().startswith("zh")
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename or 'the disk'}: {error.strerror}."
    text = shortened(text)
    return JSONResponse({"detail": translated(text) if chinese else text}, 400)
