"""What one person does who trusts their whole cluster: code goes out and comes back."""

from __future__ import annotations

import json

from dask.distributed import WorkerPlugin

import safeser


class Thing:
    """A class of this program, which no profile lists and nobody registered."""

    def __init__(self, value: int) -> None:
        self.value = value


class Wrong(Exception):
    """An error that carries more than its text."""


class Plugin(WorkerPlugin):
    name = "own"


def fails() -> None:
    raise Wrong("no", 7)


def main() -> None:
    options = {"policy": "trusted", "n_workers": 1, "threads_per_worker": 1}
    with safeser.Client(**options) as client:
        function = client.submit(lambda: lambda x: x + 1)
        scattered = client.scatter(Thing(3))
        try:
            client.submit(fails).result(timeout=30)
        except Exception as error:
            failed = [type(error).__name__, *error.args]
        client.register_plugin(Plugin())
        print(
            json.dumps(
                {
                    "function": function.result(timeout=30)(1),
                    "direct": client.gather(function, direct=True)(2),
                    "thing": client.submit(lambda: Thing(5)).result(timeout=30).value,
                    "scattered": scattered.result(timeout=30).value,
                    "used": client.submit(lambda thing: thing.value, scattered).result(timeout=30),
                    "run": [f(1) for f in client.run(lambda: lambda x: x * 3).values()],
                    "failed": failed,
                }
            )
        )


if __name__ == "__main__":
    main()
