"""A cluster of this machine's processes on safeser://, with keys made for it and a log.

Run it: python examples/local_cluster.py
"""

from __future__ import annotations

import dask.array as da

import safeser


def main() -> None:
    # A scheduler, workers and this client, each with a key of its own, under policy "default".
    with safeser.Client(n_workers=1, threads_per_worker=2) as client:
        print(client)

        # The work is as ever.
        print("sum:", client.submit(sum, [20, 22]).result())
        print("array:", da.ones((100, 100), chunks=50).sum().compute())

        # What would have to be a pickle of code becomes an error of that one result.
        function = client.submit(lambda: lambda: "code")
        try:
            function.result()
        except safeser.SafeserError as error:
            print("not here:", error)
        print("goes on:", client.submit(abs, -3).result())


if __name__ == "__main__":
    main()
