"""Every operation of Dask's protocol, one line each: what it is, its fields and its payloads.

The one rule: an operation that is not listed is not known, and a field that is not listed is
refused. Many of Dask's handlers take whatever comes and put it into the state of a task, or hand it
on to others who unpickle it.

A line has the name, ``group/kind`` (without ``/kind``: an administrative one), then, in any order,

- ``field:shape`` (:mod:`safeser.operations.shapes`). The names of fields are those of the handlers'
  own parameters, in both directions, in each release that the table was compared with; where a
  handler takes any field, those that honest peers send. ``any`` is the shape of what users put in
  (decided as a payload, or plain data) and of what is a payload. A field that not all of these
  releases have names the first one that has it, ``field:shape@2026.6.0``, or the first one that has
  it no more, ``field:shape@<2026.6.0``.
- ``encoding=path,path``: the payloads that it may carry, and after ``->`` those of a successful
  reply (:class:`~safeser.operations.operation.Encoding`); nothing after ``=`` is the whole.
- ``becomes=``, ``splits=``, ``since=``, ``until=``, ``wire=``, ``inline`` and ``bulk``, as
  :class:`~safeser.operations.operation.Operation` has them.

There is one line for each handler that a running server registers, extensions included, for each
element that a client's loop handles itself, and for each operation of safeser's own. A client
answers no requests. The one stream that a worker reads is the one that it opened to its scheduler.

``author`` and ``authors`` are safeser's own: whose the values are that a worker gets, has or asks
for. So are the fields of ``serialization_counts``: which trace asks, and for how long it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from safeser.gate.values import Kind
from safeser.operations.operation import Channel, Encoding, Operation, Server

__all__ = ["ROWS"]

_SCHEDULER_REQUESTS = """
identity basic n_workers:number
versions basic packages:word*?
who_has basic keys:key*?
has_what basic workers:worker*?
nbytes basic keys:key*? summary:flag
ncores basic workers:worker*?
ncores_running basic workers:worker*?
processing basic workers:worker*?
retry basic keys:key* client:word?
rebalance basic keys:key*? workers:worker*? stimulus_id:text?
replicate basic keys:key* n:count? workers:worker*? branching_factor:count delete:flag
    stimulus_id:text?
update_data basic who_has:key->address* nbytes:key->number client:word?
publish_list basic
publish_delete basic name:key@<2026.6.0 names:key*@2026.6.0 client:word@2026.6.0
    uid:bytes|word@2026.6.0
queue_create basic name:key client:word? maxsize:number
queue_qsize basic name:key client:word?
event_set basic name:key
event_wait basic name:key timeout:number|word?
event_clear basic name:key
event_is_set basic name:key
multi_lock_acquire basic locks:key* id:key timeout:number|word? num_locks:count
multi_lock_release basic id:key
semaphore_register basic name:key max_leases:count lease_timeout:number?
semaphore_acquire basic name:key timeout:number|word? lease_id:key
semaphore_release basic name:key lease_id:key
semaphore_close basic name:key
semaphore_refresh_leases basic name:key lease_ids:key*
semaphore_value basic name:key
memory_sampler_start basic client:word measure:word interval:number
memory_sampler_stop basic key:word
# Values of users in plain msgpack: data, though nothing in them needs a family.
set_metadata basic/data keys:key* value:any
get_metadata basic/data keys:key* default:any
events basic/data topic:word?
queue_put basic/data name:key key:key? data:any client:word? timeout:number|word?
variable_set basic/data name:key key:key? data:any client:word? timeout:number|word?
# tells whether the active memory manager runs; its handler looks up what it is told
amm_running basic wire=amm_handler method:=running
close basic inline  # ends this connection only; the server loop answers OK and leaves
# first element back is stream-start; any process can be a client, workers too
register-client basic becomes=client-stream client:word versions:text->any
# errors of failed futures; a list of records if a batch was asked for
queue_get basic/data name:key client:word? timeout:number|word? batch:flag|count
    -> error=exception,traceback,[].exception,[].traceback
variable_get basic/data name:key client:word? timeout:number|word? -> error=exception,traceback
# every client that subscribes to topic warn unpickles message and category
log_event basic/data raw=msg.message,msg.category topic:word|word* msg:event
gather basic/data keys:key* -> marked=data
scatter basic/data marked=data data:key->any|any* workers:worker*? client:word
    broadcast:flag|count timeout:number|word?
publish_put basic/data marked=data name:key@<2026.6.0 names:key*@2026.6.0 keys:key*
    data:any@<2026.6.0 data:any*@2026.6.0 override:flag client:word uid:bytes|word@2026.6.0
# Since 2026.6.0 a request about datasets names several and waits for the client's stream by itself.
publish_get basic/data until=2026.6.0 name:key client:word -> marked=data
publish_get basic/data since=2026.6.0 names:key* -> marked=[].data
# waits until the client's stream has brought the same uid
publish_wait_flush basic until=2026.6.0 uid:bytes|word
# relays msg to workers, or to nannies if the field nanny is true; an error of one of them may
# stand in place of its reply, as bare pickled bytes
broadcast basic nested=msg msg:text->any workers:worker*? hosts:worker*? nanny:flag on_error:word
    -> nested=*
proxy basic nested=msg msg:text->any worker:worker -> nested=  # relays msg to one worker
# --- between the parts of a cluster
shuffle_barrier cluster id:word run_id:number consistent:flag
shuffle_restrict_task cluster id:word run_id:number key:key worker:address
heartbeat_worker cluster bulk address:address resolve_address:flag now:number?
    resources:word->number? host_info:text->any? metrics:text->any executing:key->number?
    extensions:text->any?
add_keys cluster bulk worker:worker keys:key* stimulus_id:text?
# address and nanny name what the scheduler will connect to; always replies with one pickled
# plugin for shuffles
register-worker cluster becomes=worker-stream bulk address:address status:word server_id:word
    nthreads:count name:word|number resolve_address:flag now:number resources:word->number
    host_info:text->any? memory_limit:count? metrics:text->any pid:count services:text->any
    local_directory:text versions:text->any nanny:address? extra:text->any stimulus_id:text
    -> raw=worker-plugins
# the nanny answers the reply with one more message
register_nanny cluster address:address -> raw=nanny-plugins
# removes any worker by its address
unregister cluster/control address:address stimulus_id:text expected:flag close:flag
# cluster managers; pairs such as ['add', {...}] follow the reply
subscribe_worker_status cluster becomes=feed
shuffle_get cluster/data id:word worker:address -> marked=run_spec
shuffle_get_or_create cluster/data shuffle_id:word key:key worker:address -> marked=run_spec
# --- looking inside
logs diagnose start:number n:number? timestamps:flag
get_logs diagnose start:number n:number? timestamps:flag
worker_logs diagnose n:number? workers:worker*? nanny:flag
get_story diagnose keys_or_stimuli:key*
call_stack diagnose keys:key*?
profile diagnose workers:worker*? scheduler:flag server:flag merge_workers:flag start:number?
    stop:number? key:key?
dump_state diagnose exclude:word*
get_cluster_state diagnose exclude:word*
performance_report diagnose start:number last_count:number code:text mode:word?
check_idle diagnose
get_task_status diagnose keys:key*
get_task_prefix_states diagnose
get_task_stream_index diagnose since=2026.6.0
start_task_metadata diagnose name:word
stop_task_metadata diagnose name:word?
get_error_cause diagnose keys:key*
# safeser's own: how much this process serialized, for safeser.trace_serialization
serialization_counts diagnose inline trace:word seconds:number
# passes on the type that workers reported
get_task_stream diagnose/data start:number|word? stop:number|word? count:number?
    start_index:number?@2026.6.0 -> raw=[].type
# replies with the task itself, which the client runs to replay it
get_runspec diagnose/task key:key -> marked=
# --- code and authority
run_function run/control raw=function,args,kwargs function:any args:any kwargs:any wait:flag
    -> marked=result
# runs function over and over; progress bars of stock clients use it
feed run/control raw=function,setup,teardown becomes=feed function:any setup:any teardown:any
    interval:number|word
register_scheduler_plugin plugins/control raw=plugin plugin:any name:word? idempotent:flag
# kept, and sent to every worker or nanny that registers later
register_worker_plugin plugins/control raw=plugin plugin:any name:word idempotent:flag
    -> error=*.exception,*.traceback
# kept, and sent to every worker or nanny that registers later
register_nanny_plugin plugins/control raw=plugin plugin:any name:word idempotent:flag
    -> error=*.exception,*.traceback
unregister_worker_plugin plugins/control name:word -> error=*.exception,*.traceback
unregister_nanny_plugin plugins/control name:word -> error=*.exception,*.traceback
unregister_scheduler_plugin plugins/control name:word
# writes to whatever path or URL fsspec knows, in plain msgpack
dump_cluster_state_to_url files/control url:text exclude:word* format:word *:any
restart control/control client:word? timeout:number wait_for_workers:flag stimulus_id:text
restart_workers control/control workers:worker*? client:word? timeout:number wait_for_workers:flag
    on_error:word stimulus_id:text
terminate control/control timeout:number|word? reason:text
adaptive_target control/control target_duration:number?
set_resources control/control worker:worker resources:word->number?
set_restrictions control/control worker:key->worker*|worker?
# starts or stops the active memory manager, or has it move and drop copies once
amm_handler control/control method:=start|=stop|=run_once
workers_to_close control/control raw=key memory_ratio:number? n:count? key:any minimum:count?
    target:count? attribute:word
# without workers or names, hands its other fields to workers_to_close: key included
retire_workers control/control raw=key workers:worker*? names:key*? close_workers:flag remove:flag
    stimulus_id:text? memory_ratio:number? n:count? key:any minimum:count? target:count?
    attribute:word
benchmark_hardware benchmark/control  # loads disk, memory and network
echo debug/control data:any  # replies with its decoded argument
# every stream operation without registration, past blocked handlers
connection_stream debug/control becomes=raw-stream extra:text->any?
"""

_SCHEDULER_FROM_CLIENTS = """
heartbeat-client basic client:word
close-client basic client:word stimulus_id:text?
cancel-keys basic keys:key* client:word force:flag reason:text? msg:text?
report-key basic key:key? client:word?
update-data basic who_has:key->address* nbytes:key->number client:word?
subscribe-topic basic topic:word client:word
unsubscribe-topic basic topic:word client:word
publish_flush_batched_send basic client:word uid:bytes|word
queue-future-release basic name:key key:key client:word
queue_release basic name:key client:word
variable-future-received-confirm basic name:key key:key token:word client:word
variable_delete basic name:key client:word
client-desires-keys basic splits=keys keys:key* client:word
client-releases-keys basic splits=keys keys:key* client:word stimulus_id:text?
# the scheduler's handler opens expr_ser by itself, whatever families it was given
# bulk also where it is refused: its keys have to be failed
update-graph basic/task marked=expr_ser,code,annotations,span_metadata bulk client:word
    expr_ser:any keys:key* span_metadata:any internal_priority:key->number? submitting_task:key?
    user_priority:number|key->number actors:flag|key*? fifo_timeout:number|word code:any
    annotations:any stimulus_id:text?
"""

_SCHEDULER_FROM_WORKERS = """
keep-alive cluster worker:address
release-worker-data cluster key:key worker:address stimulus_id:text
long-running cluster key:key worker:address run_id:number compute_duration:number?
    stimulus_id:text
reschedule cluster key:key worker:address? stimulus_id:text
steal-response cluster key:key state:word? stimulus_id:text worker:address?
worker-status-change cluster status:word worker:address stimulus_id:text
add-keys cluster bulk worker:address keys:key* stimulus_id:text? author:word authors:key->word
request-refresh-who-has cluster bulk keys:key* worker:address stimulus_id:text
# type is passed on to clients, who unpickle it; typename says the same as text
task-finished cluster/data raw=type key:key worker:address stimulus_id:text run_id:number
    metadata:key->any nbytes:number? type:any typename:text startstops:any thread:number?
    status:word
# passed on unopened to the clients that wait for the task
task-erred cluster/data error=exception,traceback key:key worker:address stimulus_id:text
    run_id:number exception:any traceback:any exception_text:text traceback_text:text
    startstops:any thread:number? status:word
# every client that subscribes to topic warn unpickles message and category
log-event cluster/data raw=msg.message,msg.category worker:address topic:word|word* msg:event
"""

_SCHEDULER_FROM_BOTH = """
close-stream basic inline  # ends this stream only
"""

_WORKER_REQUESTS = """
identity basic
versions basic packages:word*?
ping basic
keys basic
close basic inline  # ends this connection only
# the asker answers the reply with OK
get_data basic/data bulk keys:key* who:address? author:word authors:key->word -> marked=data
update_data basic/data marked=data data:key->any stimulus_id:text? author:word
# --- between the parts of a cluster
free_keys cluster stimulus_id:text keys:key*
shuffle_inputs_done cluster shuffle_id:word run_id:number
# who_has names addresses, schemes included, that the worker fetches from
gather cluster/data who_has:key->address* authors:key->word
# small shards are one pickle in bytes, which the handler opens with plain pickle
shuffle_receive cluster/data wrapped=data bulk shuffle_id:word run_id:number data:any
# --- looking inside
get_logs diagnose start:number n:number? timestamps:flag
get_story diagnose keys_or_stimuli:key*
get_monitor_info diagnose recent:flag start:number
call_stack diagnose keys:key*?
dump_state diagnose exclude:word*
profile diagnose start:number? stop:number? key:key? server:flag
profile_metadata diagnose start:number stop:number?
# safeser's own: how much this process serialized, for safeser.trace_serialization
serialization_counts diagnose inline trace:word seconds:number
# --- code and authority
run run/control raw=function,args,kwargs function:any args:any wait:flag kwargs:any
    -> marked=result
run_coroutine run/control raw=function,args,kwargs function:any args:any kwargs:any wait:flag
    -> marked=result
plugin-add plugins/control raw=plugin plugin:any name:word? catch_errors:flag
plugin-remove plugins/control name:word
# writes to a path of the sender's choice and imports it, in plain msgpack
upload_file files/control filename:file data:any load:flag
# calls any attribute of an actor, with the sender's arguments
actor_execute actors/control marked=args,kwargs actor:key function:word args:any kwargs:any
    -> marked=result,exception
# reads any attribute of an actor
actor_attribute actors/control actor:key attribute:word -> marked=result,exception
terminate control/control timeout:number executor_wait:flag nanny:flag reason:text
benchmark_disk benchmark/control  # writes files
benchmark_memory benchmark/control  # copies large buffers
benchmark_network benchmark/control address:address  # connects to the address it is told
echo debug/control data:any  # replies with its decoded argument
# every stream operation, compute-task included, for any peer that connects
connection_stream debug/control becomes=raw-stream extra:text->any?
"""

_WORKER_ELEMENTS = """
free-keys cluster stimulus_id:text keys:key*
remove-replicas cluster stimulus_id:text keys:key*
steal-request cluster stimulus_id:text key:key
cancel-compute cluster stimulus_id:text key:key
worker-status-change cluster status:word stimulus_id:text
remove-worker cluster worker:address stimulus_id:text
shuffle-fail cluster shuffle_id:word run_id:number message:text
# who_has names addresses
acquire-replicas cluster stimulus_id:text who_has:key->address* nbytes:key->number
    authors:key->word
refresh-who-has cluster stimulus_id:text who_has:key->address*  # who_has names addresses
# pickled anew by the scheduler; who_has names addresses
compute-task cluster/task marked=run_spec stimulus_id:text key:key run_id:number
    who_has:key->address* nbytes:key->number priority:number* run_spec:any
    resource_restrictions:word->number? actor:flag annotations:any span_id:word? author:word
    authors:key->word
# shuts the worker down
close cluster/control timeout:number executor_wait:flag nanny:flag reason:text
close-stream basic inline  # ends this stream only
"""

_NANNY_REQUESTS = """
identity basic
close basic inline  # ends this connection only
dump_state diagnose exclude:word*
get_logs diagnose start:number n:number? timestamps:flag
run run/control raw=function,args,kwargs function:any args:any wait:flag kwargs:any
    -> marked=result
plugin_add plugins/control raw=plugin plugin:any name:word?
plugin_remove plugins/control name:word
instantiate control/control
kill control/control timeout:number reason:text
restart control/control timeout:number reason:text
terminate control/control timeout:number reason:text
# its worker says that it retires and must not be started again
close_gracefully control/control reason:text
echo debug/control data:any  # replies with its decoded argument
# a nanny has no stream handlers, so that nothing can follow
connection_stream debug/control becomes=raw-stream extra:text->any?
"""

_CLIENT_ELEMENTS = """
lost-data basic key:key
cancelled-keys basic keys:key* reason:text? msg:text?
task-retried basic key:key
adjust-heartbeat-interval basic interval:number
# type was written by the worker that ran the task
key-in-memory basic/data raw=type key:key type:any workers:word*?
# written by the worker that ran the task
task-erred basic/data error=exception,traceback key:key exception:any traceback:any
error basic/data error=exception exception:any
# opened for topic warn, which clients subscribe to by default; any client or worker may have
# written it
event basic/data raw=event[].message,event[].category topic:text event:any
# The scheduler's request of the same name is authority, and grants are by name: a policy that lets
# clients hear of a restart names it for messages to clients alone.
restart control  # futures are cancelled; carries nothing
# the first element of the stream, in a batch of its own
stream-start basic inline warning:text? error:text?
close basic inline  # ends the client's report loop
stream-closed basic inline  # the same as close
"""

_FROM_CLIENTS, _FROM_WORKERS = frozenset({"client-stream"}), frozenset({"worker-stream"})

_SECTIONS: tuple[tuple[Server, Channel, frozenset[str], str], ...] = (
    (Server.SCHEDULER, Channel.RPC, frozenset(), _SCHEDULER_REQUESTS),
    (Server.SCHEDULER, Channel.STREAM, _FROM_CLIENTS, _SCHEDULER_FROM_CLIENTS),
    (Server.SCHEDULER, Channel.STREAM, _FROM_WORKERS, _SCHEDULER_FROM_WORKERS),
    (Server.SCHEDULER, Channel.STREAM, _FROM_CLIENTS | _FROM_WORKERS, _SCHEDULER_FROM_BOTH),
    (Server.WORKER, Channel.RPC, frozenset(), _WORKER_REQUESTS),
    (Server.WORKER, Channel.STREAM, _FROM_WORKERS, _WORKER_ELEMENTS),
    (Server.NANNY, Channel.RPC, frozenset(), _NANNY_REQUESTS),
    (Server.CLIENT, Channel.STREAM, _FROM_CLIENTS, _CLIENT_ELEMENTS),
)

_ENCODINGS = frozenset(each.value for each in Encoding)


def _lines(text: str) -> Iterator[list[str]]:
    for line in text.replace("\n    ", " ").strip().splitlines():
        words = line.partition("#")[0].split()
        if words:
            yield words


def _row(server: Server, channel: Channel, streams: frozenset[str], words: list[str]) -> Operation:
    name, what, *rest = words
    group, _, kind = what.partition("/")
    cut = rest.index("->") if "->" in rest else len(rest)
    options: dict[str, Any] = {}
    fields: dict[str, Encoding] = {}
    spelt = []
    for word in rest[:cut]:
        option, equals, value = word.partition("=")
        if ":" in option:
            spelt.append(word)
        elif option in _ENCODINGS:
            fields |= _payloads(word)
        else:
            options[option] = value if equals else True
    return Operation(
        server,
        channel,
        name,
        Kind(kind or "admin"),
        group,
        fields=fields,
        reply={path: held for word in rest[cut + 1 :] for path, held in _payloads(word).items()},
        streams=streams,
        spelt=tuple(spelt),
        **options,
    )


def _payloads(word: str) -> Mapping[str, Encoding]:
    encoding, _, paths = word.partition("=")
    return dict.fromkeys(paths.split(","), Encoding(encoding))


#: The rows of all releases, server by server, without the shapes of their fields.
ROWS: tuple[Operation, ...] = tuple(
    _row(server, channel, streams, words)
    for server, channel, streams, text in _SECTIONS
    for words in _lines(text)
)
