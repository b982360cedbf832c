"""A worker process as the pool sees it: its pipes, its slots, and what it was told to do."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from hpml.marl.collect import wire


@dataclass
class Worker:
    """A process and its slots.

    - `told`: what it was told and has not done yet, as the kind of the command and how many steps; or None.
    - `ready`: whether it has ever shown its first observations.
    - `ends`: how often it has ended in a row without a rollout between.
    """

    slots: list[int]
    process: subprocess.Popen | None = None
    commands: int = -1
    replies: int = -1
    ready: bool = False
    imports_jax: bool = False
    ends: int = 0
    told: tuple[int, int] | None = None

    def launch(self, memory: int) -> None:
        """Start it, with its ends of the pipes and the shared memory.

        A fresh interpreter that imports nothing else: forking after JAX hangs, and multiprocessing would import the
        caller's main module with all that it imports.
        """
        theirs_in, self.commands = os.pipe()
        self.replies, theirs_out = os.pipe()
        handed = (theirs_in, theirs_out, memory)
        code = f"import sys; sys.path[:] = {sys.path!r}; from hpml.marl.collect.worker import main; main(*{handed!r})"
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=handed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | one_thread,
                process_group=0,  # Ctrl-C is for the parent, which decides what follows.
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def tell(self, kind: int, steps: int) -> None:
        """Play so many steps. That nobody listens any more shows when the answer is waited for."""
        self.told = kind, steps
        with suppress(BrokenPipeError):
            wire.send(self.commands, kind, steps)

    def dismiss(self) -> None:
        """End it, if it has not ended."""
        if self.process is None:
            return
        os.close(self.commands)
        os.close(self.replies)
        self.process.kill()
        self.process.wait()
        self.process = None
