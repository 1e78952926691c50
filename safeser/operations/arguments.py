"""Every field that each operation takes, and which shape it must have.

The one rule: a field that is not listed is refused. Many of Dask's handlers take whatever comes
and put it into the state of a task, or hand it on to others who unpickle it.

One line for each row of the table: its name, then ``field:shape``
(:mod:`safeser.operations.shapes`). The names of fields are those of the handlers' own parameters,
in both directions, in each release that the table was compared with; where a handler takes any
field, those that honest peers send. ``any`` is the shape of what users put in (decided as a
payload, or plain data) and of what is a payload.

``author`` and ``authors`` are safeser's own: whose the values are that a worker gets, has or asks
for. So are the fields of ``serialization_counts``: which trace asks, and for how long it counts.

A field that not all of these releases have names the first one that has it,
``field:shape@2026.6.0``, or the first one that has it no more, ``field:shape@<2026.6.0``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from safeser.operations.operation import Channel, Server
from safeser.operations.releases import Release, is_between
from safeser.operations.shapes import Shape, shape

__all__ = ["ENVELOPE", "spelt"]

#: Fields of every request, which Dask's loop takes away before the handler is called.
ENVELOPE: Mapping[str, Shape] = MappingProxyType(
    {
        "op": shape("text"),
        "reply": shape("flag"),
        "close": shape("flag"),
        "serializers": shape("word*?"),
    }
)

_SCHEDULER_REQUESTS = """
identity n_workers:number
echo data:any
connection_stream extra:text->any?
close
dump_state exclude:word*
register-client client:word versions:text->any
scatter data:key->any|any* workers:worker*? client:word broadcast:flag|count timeout:number|word?
register-worker address:address status:word server_id:word nthreads:count name:word|number
    resolve_address:flag now:number resources:word->number host_info:text->any?
    memory_limit:count? metrics:text->any pid:count services:text->any local_directory:text
    versions:text->any nanny:address? extra:text->any stimulus_id:text
register_nanny address:address
unregister address:address stimulus_id:text expected:flag close:flag
gather keys:key*
retry keys:key* client:word?
feed function:any setup:any teardown:any interval:number|word
terminate timeout:number|word? reason:text
broadcast msg:text->any workers:worker*? hosts:worker*? nanny:flag on_error:word
proxy msg:text->any worker:worker
ncores workers:worker*?
ncores_running workers:worker*?
has_what workers:worker*?
who_has keys:key*?
processing workers:worker*?
call_stack keys:key*?
profile workers:worker*? scheduler:flag server:flag merge_workers:flag start:number? stop:number?
    key:key?
performance_report start:number last_count:number code:text mode:word?
get_logs start:number n:number? timestamps:flag
logs start:number n:number? timestamps:flag
worker_logs n:number? workers:worker*? nanny:flag
log_event topic:word|word* msg:event
events topic:word?
nbytes keys:key*? summary:flag
versions packages:word*?
add_keys worker:worker keys:key* stimulus_id:text?
rebalance keys:key*? workers:worker*? stimulus_id:text?
replicate keys:key* n:count? workers:worker*? branching_factor:count delete:flag stimulus_id:text?
run_function function:any args:any kwargs:any wait:flag
restart client:word? timeout:number wait_for_workers:flag stimulus_id:text
restart_workers workers:worker*? client:word? timeout:number wait_for_workers:flag on_error:word
    stimulus_id:text
update_data who_has:key->address* nbytes:key->number client:word?
set_resources worker:worker resources:word->number?
retire_workers workers:worker*? names:key*? close_workers:flag remove:flag stimulus_id:text?
    memory_ratio:number? n:count? key:any minimum:count? target:count? attribute:word
get_metadata keys:key* default:any
set_metadata keys:key* value:any
set_restrictions worker:key->worker*|worker?
heartbeat_worker address:address resolve_address:flag now:number? resources:word->number?
    host_info:text->any? metrics:text->any executing:key->number? extensions:text->any?
get_task_status keys:key*
get_task_stream start:number|word? stop:number|word? count:number?
    start_index:number?@2026.6.0
get_task_stream_index
get_task_prefix_states
register_scheduler_plugin plugin:any name:word? idempotent:flag
unregister_scheduler_plugin name:word
register_worker_plugin plugin:any name:word idempotent:flag
unregister_worker_plugin name:word
register_nanny_plugin plugin:any name:word idempotent:flag
unregister_nanny_plugin name:word
adaptive_target target_duration:number?
workers_to_close memory_ratio:number? n:count? key:any minimum:count? target:count? attribute:word
subscribe_worker_status
start_task_metadata name:word
stop_task_metadata name:word?
get_cluster_state exclude:word*
dump_cluster_state_to_url url:text exclude:word* format:word *:any
benchmark_hardware
get_story keys_or_stimuli:key*
check_idle
multi_lock_acquire locks:key* id:key timeout:number|word? num_locks:count
multi_lock_release id:key
publish_list
publish_put name:key@<2026.6.0 names:key*@2026.6.0 keys:key* data:any@<2026.6.0
    data:any*@2026.6.0 override:flag client:word uid:bytes|word@2026.6.0
publish_get name:key@<2026.6.0 client:word@<2026.6.0 names:key*@2026.6.0
publish_delete name:key@<2026.6.0 names:key*@2026.6.0 client:word@2026.6.0
    uid:bytes|word@2026.6.0
publish_wait_flush uid:bytes|word
get_runspec key:key
get_error_cause keys:key*
serialization_counts trace:word seconds:number
queue_create name:key client:word? maxsize:number
queue_put name:key key:key? data:any client:word? timeout:number|word?
queue_get name:key client:word? timeout:number|word? batch:flag|count
queue_qsize name:key client:word?
variable_set name:key key:key? data:any client:word? timeout:number|word?
variable_get name:key client:word? timeout:number|word?
semaphore_register name:key max_leases:count lease_timeout:number?
semaphore_acquire name:key timeout:number|word? lease_id:key
semaphore_release name:key lease_id:key
semaphore_close name:key
semaphore_refresh_leases name:key lease_ids:key*
semaphore_value name:key
event_wait name:key timeout:number|word?
event_set name:key
event_clear name:key
event_is_set name:key
amm_handler method:=start|=stop|=run_once
amm_running method:=running
memory_sampler_start client:word measure:word interval:number
memory_sampler_stop key:word
shuffle_barrier id:word run_id:number consistent:flag
shuffle_get id:word worker:address
shuffle_get_or_create shuffle_id:word key:key worker:address
shuffle_restrict_task id:word run_id:number key:key worker:address
"""

_SCHEDULER_ELEMENTS = """
close-stream
task-finished key:key worker:address stimulus_id:text run_id:number metadata:key->any
    nbytes:number? type:any typename:text startstops:any thread:number? status:word
task-erred key:key worker:address stimulus_id:text run_id:number exception:any traceback:any
    exception_text:text traceback_text:text startstops:any thread:number? status:word
release-worker-data key:key worker:address stimulus_id:text
add-keys worker:address keys:key* stimulus_id:text? author:word authors:key->word
long-running key:key worker:address run_id:number compute_duration:number? stimulus_id:text
reschedule key:key worker:address? stimulus_id:text
keep-alive worker:address
log-event worker:address topic:word|word* msg:event
worker-status-change status:word worker:address stimulus_id:text
request-refresh-who-has keys:key* worker:address stimulus_id:text
update-graph client:word expr_ser:any keys:key* span_metadata:any
    internal_priority:key->number? submitting_task:key? user_priority:number|key->number
    actors:flag|key*? fifo_timeout:number|word code:any annotations:any stimulus_id:text?
renew-statement statement:bytes
client-desires-keys keys:key* client:word
update-data who_has:key->address* nbytes:key->number client:word?
report-key key:key? client:word?
client-releases-keys keys:key* client:word stimulus_id:text?
heartbeat-client client:word
close-client client:word stimulus_id:text?
subscribe-topic topic:word client:word
unsubscribe-topic topic:word client:word
cancel-keys keys:key* client:word force:flag reason:text? msg:text?
publish_flush_batched_send client:word uid:bytes|word
queue-future-release name:key key:key client:word
queue_release name:key client:word
variable-future-received-confirm name:key key:key token:word client:word
variable_delete name:key client:word
steal-response key:key state:word? stimulus_id:text worker:address?
"""

_WORKER_REQUESTS = """
identity
echo data:any
connection_stream extra:text->any?
close
dump_state exclude:word*
gather who_has:key->address* authors:key->word
run function:any args:any wait:flag kwargs:any
run_coroutine function:any args:any kwargs:any wait:flag
get_data keys:key* who:address? author:word authors:key->word
update_data data:key->any stimulus_id:text? author:word
free_keys stimulus_id:text keys:key*
terminate timeout:number executor_wait:flag nanny:flag reason:text
ping
upload_file filename:file data:any load:flag
call_stack keys:key*?
profile start:number? stop:number? key:key? server:flag
profile_metadata start:number stop:number?
serialization_counts trace:word seconds:number
get_logs start:number n:number? timestamps:flag
keys
versions packages:word*?
actor_execute actor:key function:word args:any kwargs:any
actor_attribute actor:key attribute:word
plugin-add plugin:any name:word? catch_errors:flag
plugin-remove name:word
get_monitor_info recent:flag start:number
benchmark_disk
benchmark_memory
benchmark_network address:address
get_story keys_or_stimuli:key*
shuffle_receive shuffle_id:word run_id:number data:any
shuffle_inputs_done shuffle_id:word run_id:number
"""

_WORKER_ELEMENTS = """
close-stream
close timeout:number executor_wait:flag nanny:flag reason:text
cancel-compute stimulus_id:text key:key
acquire-replicas stimulus_id:text who_has:key->address* nbytes:key->number
    authors:key->word
compute-task stimulus_id:text key:key run_id:number who_has:key->address* nbytes:key->number
    priority:number* run_spec:any resource_restrictions:word->number? actor:flag annotations:any
    span_id:word? author:word authors:key->word
statement-renewed statement:bytes
free-keys stimulus_id:text keys:key*
remove-replicas stimulus_id:text keys:key*
steal-request stimulus_id:text key:key
refresh-who-has stimulus_id:text who_has:key->address*
worker-status-change status:word stimulus_id:text
remove-worker worker:address stimulus_id:text
shuffle-fail shuffle_id:word run_id:number message:text
"""

_NANNY_REQUESTS = """
identity
echo data:any
connection_stream extra:text->any?
close
dump_state exclude:word*
instantiate
kill timeout:number reason:text
restart timeout:number reason:text
get_logs start:number n:number? timestamps:flag
terminate timeout:number reason:text
close_gracefully reason:text
run function:any args:any wait:flag kwargs:any
plugin_add plugin:any name:word?
plugin_remove name:word
"""

_CLIENT_ELEMENTS = """
stream-start warning:text? error:text?
close
stream-closed
key-in-memory key:key type:any workers:word*?
lost-data key:key
cancelled-keys keys:key* reason:text? msg:text?
task-retried key:key
task-erred key:key exception:any traceback:any
restart
error exception:any
event topic:text event:any
adjust-heartbeat-interval interval:number
"""

_TEXTS = {
    (Server.SCHEDULER, Channel.RPC): _SCHEDULER_REQUESTS,
    (Server.SCHEDULER, Channel.STREAM): _SCHEDULER_ELEMENTS,
    (Server.WORKER, Channel.RPC): _WORKER_REQUESTS,
    (Server.WORKER, Channel.STREAM): _WORKER_ELEMENTS,
    (Server.NANNY, Channel.RPC): _NANNY_REQUESTS,
    (Server.CLIENT, Channel.STREAM): _CLIENT_ELEMENTS,
}


def _lines(text: str) -> Iterator[list[str]]:
    for line in text.replace("\n    ", " ").strip().splitlines():
        yield line.split()


_SPELT: Mapping[tuple[Server, Channel, str], tuple[str, ...]] = MappingProxyType(
    {
        (*place, name): tuple(spelt)
        for place, text in _TEXTS.items()
        for name, *spelt in _lines(text)
    }
)


def spelt(place: tuple[Server, Channel, str], given: Release) -> tuple[str, ...]:
    """Return the fields of the operation at *place* in the release *given*, as ``name:shape``.

    The name ``*`` stands for every other one.
    """
    dated = (each.partition("@") for each in _SPELT[place])
    return tuple(field for field, _, when in dated if _is_in(when, given))


def _is_in(when: str, given: Release) -> bool:
    if when.startswith("<"):
        return is_between(given, "", when[1:])
    return is_between(given, when, "")
