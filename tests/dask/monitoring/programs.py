"""Programs of clients whose decisions the metrics and the page show."""

__all__ = ["CLIENT", "DASHBOARD"]

#: Some tasks, of which one makes its own load refuse an attack.
CLIENT = """
import json, os, pickle, sys
import safeser

class Evil:
    def __reduce__(self):
        return print, ("ran",)

def own_load(data):
    try:
        safeser.pickles.loads(data)
    except safeser.SafeserError as error:
        return error.rule
    raise AssertionError("it was loaded")

with safeser.Client(sys.argv[1]) as client:
    client.wait_for_workers(int(sys.argv[2]))
    assert client.gather(client.map(lambda x: x + 1, range(5))) == [1, 2, 3, 4, 5]
    key = os.environ.get("KEY_PREFIX", "") + "load"
    print(json.dumps(client.submit(own_load, pickle.dumps(Evil()), key=key).result()))
"""

#: A scheduler whose log gets refusals as hostile as peers can make them.
DASHBOARD = r"""
import asyncio, json, sys
from distributed import Scheduler
from safeser.dask.servers import served

HOSTILE = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"
OTHERS = ("$$\\alpha$$ \\[x\\]", "\x1b[2J\u202e", "{{ 7*7 }} <%= 7*7 %>", "=cmd()|x")

async def main():
    options = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
    async with Scheduler(protocol="safeser", **options) as scheduler:
        audit = served(scheduler).channel.audit
        for text in (*OTHERS, HOSTILE):
            said = {"operation": text, "family": text, "where": text, "reason": text, "rule": text}
            audit.record({
                "event": "refuse", "sender": text, "recipient": "scheduler", "kind": "task",
                "permitted": False, **said,
            })
        audit.record({
            "event": "refuse", "sender": "bob", "recipient": "scheduler", "kind": "task",
            "operation": "update-graph", "family": "sealed", "where": "graph",
            "rule": "submission.none", "permitted": False, "reason": "bob may not submit",
        })
        for n in range(50):
            audit.count("alice", "scheduler", "identity", "permit", True)
        print(json.dumps({"port": scheduler.http_server.port}), flush=True)
        await scheduler.finished()

asyncio.run(main())
"""
