"""What install refuses, and what a body and a result must be, without a worker."""

from __future__ import annotations

from dataclasses import dataclass

import celery
import kombu
import pytest

import safeser
from safeser.boxes.kombu import SealedRedis, SealedTask, install
from safeser.errors import ConfigError, EnvelopeError
from safeser.identity import Identity
from tests.boxes.folders import write_keys
from tests.conftest import Witness


@pytest.fixture
def box(tmp_path):
    write_keys(tmp_path / "keys", Identity.generate("worker"), Identity.generate("web"))
    with safeser.Box.at(tmp_path / "keys", "worker", audit=Witness()) as made:
        yield made


def test_an_app_with_tasks_that_check_nothing_does_not_start(box):
    def app(name):
        made = celery.Celery(name)
        install(made, box, tasks="worker", results="web")
        return made

    class Careless(SealedTask):
        def before_start(self, *_):
            pass

    def task():
        return None

    class OfAnotherRequest(SealedTask):
        Request = "celery.worker.request:Request"

    for name, base in (
        ("one", celery.Task), ("two", Careless), ("five", OfAnotherRequest),
    ):  # fmt: skip
        unsafe = app(name)
        unsafe.task(task, name="unsafe", base=base, shared=False)
        unsafe.finalize()
        with pytest.raises(SystemExit, match="unsafe does not check"):
            celery.signals.celeryd_after_setup.send("worker", instance=Instance(unsafe), conf=None)
    sound = app("three")
    sound.task(task, name="sound", shared=False)
    sound.finalize()
    celery.signals.celeryd_after_setup.send("worker", instance=Instance(sound), conf=None)
    sound.conf.accept_content = ["pickle"]
    with pytest.raises(SystemExit, match="accept_content was changed"):
        celery.signals.celeryd_after_setup.send("worker", instance=Instance(sound), conf=None)
    with pytest.raises(ConfigError, match="has tasks that are not sealed") as caught:
        install(sound, box)
    assert caught.value.rule == "box.celery"
    elsewhere = celery.Celery("four", backend="rpc://")
    with pytest.raises(ConfigError, match="go to Redis"):
        install(elsewhere, box)


@dataclass
class Instance:
    app: celery.Celery


@pytest.mark.parametrize(
    "url",
    ["redis://x/0", "rediss://x/0?ssl_cert_reqs=CERT_REQUIRED", "redis+socket:///x/redis.sock"],
)
def test_results_are_read_by_the_sealed_backend(box, url):
    app = celery.Celery(f"results of {url}", backend=url)
    install(app, box, tasks="worker", results="web")
    assert type(app.backend) is SealedRedis
    assert app.conf.result_backend.removeprefix("safeser.boxes.kombu.SealedRedis+") in url


class Sold(Exception):
    pass


def test_a_failure_of_a_class_that_install_names(box):
    app = celery.Celery("errors", backend="redis://x/0")
    install(app, box, tasks="worker", results="web", errors=[Sold])
    failure = {"exc_module": __name__, "exc_type": "Sold", "exc_message": ("out",)}
    rebuilt = app.backend.exception_to_python(failure)
    assert type(rebuilt) is Sold
    assert rebuilt.args == ("out",)


def test_two_apps_of_one_name(box):
    # The second one's key would seal what the first one sends.
    install(celery.Celery("twin"), box, tasks="worker", results="web")
    with pytest.raises(ConfigError, match="the process has an app twin"):
        install(celery.Celery("twin"), box, tasks="worker", results="web")


def test_nothing_is_decompressed(box):
    # Celery 5.7 decompresses what Redis has as a result, by the method that it names.
    install(celery.Celery("compressed"), box, tasks="worker", results="web")
    for method in kombu.compression.encoders():
        data, content_type = kombu.compression.compress(b"text", method)
        with pytest.raises(EnvelopeError, match="is compressed"):
            kombu.compression.decompress(data, content_type)


@pytest.mark.parametrize("value", [7, (), ((), {}), ((), {}, []), [(), {}, {}], {"args": ()}])
def test_a_body_that_is_none_of_a_task(box, value):
    app = celery.Celery(f"bodies {value}")
    install(app, box, tasks="worker", results="web")
    data = box.seal(value, to="worker", about=f"bodies {value} tasks", ttl=60)
    with pytest.raises(kombu.exceptions.DecodeError) as caught:
        kombu.serialization.loads(data, app.conf.accept_content[0], "binary")
    assert caught.value.args[0].rule == "box.task"


def test_a_request_takes_four_things_of_a_body_and_what_was_opened(box):
    app = celery.Celery("requests")
    install(app, box, tasks="worker", results="web")
    embed = {"chain": ["then"], "is_eager": True, "safeser": ["name", "id"]}
    data = box.seal(((), {}, embed), to="worker", about="requests tasks", ttl=60)
    _, _, got = kombu.serialization.loads(data, app.conf.accept_content[0], "binary")
    assert type(got.pop("safeser")) is safeser.Opened
    assert got == {"callbacks": None, "errbacks": None, "chain": ["then"], "chord": None}
