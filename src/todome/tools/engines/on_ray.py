"""Engine on a Ray cluster: Ray Data gives items to actors, starts lost ones again, and adds more where it can.

Only items and results, a few kilobytes each, go through Ray; pictures go from the actors to their files.
"""

import contextlib
import logging
import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...errors import invalid_value
from ..cli import WAITING
from . import Place, Worker

LOCAL = "local"  # a cluster of this machine alone, for as long as the command runs
ADDRESSES = "an address such as 10.0.0.1:6379, ray://10.0.0.1:10001, auto (the cluster of this machine), or none"
PATIENCE = 10.0  # seconds for a cluster to answer
QUIET = {  # what Ray would write between our lines
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # of its other processes
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # announced as its next default
}
CPUS = 0.5  # of an actor: with whole ones, as many actors as cores leave nothing for whatever else must run


class Pool(NamedTuple):
    """How many actors, and what each of them gets."""

    least: int
    most: int
    cpus: float
    gpus: float
    threads: int  # of torch, where it computes on a CPU


class OnRay:
    """Engine with an actor for each GPU, or for a share of one.

    Args:
        address: Of the cluster; "local" starts one on this machine.
        workers: Fewest and most actors; None is one for each GPU share, or for each machine where there are no GPUs.
        gpu_share: Of a GPU, for each actor.
        device: "auto" is the GPU that Ray gives to an actor, where there is one.
    """

    remote = True

    def __init__(
        self, address: str = LOCAL, workers: tuple[int, int] | None = None, gpu_share: float = 1.0, device: str = "auto"
    ) -> None:
        self.workers, self.gpu_share, self.device = workers, gpu_share, device
        connect(address)
        self.pool()  # what cannot work is said now

    def pool(self) -> Pool:
        import ray

        found = ray.cluster_resources()
        gpus = self.gpu_share if found.get("GPU") and self.device != "cpu" else 0.0
        places = int(found.get("GPU", 0) / gpus) if gpus else sum(node["Alive"] for node in ray.nodes())
        least, most = self.workers or (places, places)
        if gpus and least > places:
            allowed = f"at most {places}, for which the cluster has GPUs now"
            raise invalid_value("workers", least, allowed, f"Use 1-{least} for a cluster that adds machines")
        cpus = min(CPUS, found.get("CPU", 1) / (2 * max(1, least)))
        threads = os.environ.get("OMP_NUM_THREADS") or found.get("CPU", 1) / max(1, most)
        return Pool(least, most, cpus, gpus, max(1, int(threads)))

    def run(self, worker: Worker, items: Sequence[Any], title: str) -> Iterator[Any]:
        """Every item is a block of its own: what is lost with an actor is the item that it was at."""
        if not items:
            return
        import ray.data

        pool, context = self.pool(), ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its import has set it
        least, most = (min(len(items), number) for number in (pool.least, pool.most))
        rows = [{"item": pickle.dumps(item)} for item in items]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            RayWorker,
            fn_constructor_args=(worker, self.device, os.getcwd(), pool.threads),
            batch_size=1,
            num_cpus=pool.cpus,
            num_gpus=pool.gpus,
            compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
        )
        data.set_name(title)
        for block in data.iter_batches(batch_size=None, prefetch_batches=0):
            for told in block["result"]:
                result, error = pickle.loads(told)
                if error is not None:
                    raise error
                yield result


class RayWorker:
    """Actor around a worker. What this raises is sent, for Ray would bury it in a page of its own."""

    def __init__(self, worker: Worker, device: str, folder: str, threads: int) -> None:
        self.worker, self.device, self.folder, self.threads, self.is_open = worker, device, folder, threads, False

    def __call__(self, block: dict[str, Any]) -> dict[str, list[bytes]]:
        return {"result": [self.answer(item) for item in block["item"]]}

    def answer(self, item: bytes) -> bytes:
        try:
            self.open_once()
            return pickle.dumps((self.worker.work(pickle.loads(item)), None))
        except Exception as error:
            return pickled_error(error)

    def open_once(self) -> None:
        import ray
        import torch

        if not self.is_open:
            torch.set_num_threads(self.threads)  # Ray has set one
            with contextlib.suppress(OSError):
                os.chdir(self.folder)  # names of files are those of the command
            self.worker.open(Place(f"{ray.util.get_node_ip_address()}/{os.getpid()}", self.device))
            self.is_open = True


def pickled_error(error: Exception) -> bytes:
    """The error, or one of its kind's parents with its words where it cannot be sent."""
    try:
        content = pickle.dumps((None, error))
        pickle.loads(content)
    except Exception:
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
    return content


def connect(address: str) -> None:
    """Connects to a cluster, or starts one here, without its notes. One that is connected already is taken."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)  # before it is imported
    import ray

    if ray.is_initialized():
        return
    check_reachable(address)
    waiting = {name: os.environ[name] for name in WAITING if name in os.environ}  # as here, on every machine
    try:
        with silenced(2):  # it announces there that it will be silent
            ray.init(address, runtime_env={"env_vars": waiting}, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        remedy = f"Ray says: {str(error).strip().splitlines()[0]}"
        raise invalid_value("ray", address, ADDRESSES, remedy, ConnectionError) from error


def check_reachable(address: str) -> None:
    """Refuses an address where nobody answers: Ray itself would try for a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError, OverflowError):
        remedy = "Nobody answers there: check the address, and that the cluster is up (ray status)"
        raise invalid_value("ray", address, ADDRESSES, remedy, ConnectionError) from None


@contextlib.contextmanager
def silenced(descriptor: int) -> Iterator[None]:
    """A stream of the process that leads nowhere, also for what is not written in Python."""
    kept, nowhere = os.dup(descriptor), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(nowhere)
