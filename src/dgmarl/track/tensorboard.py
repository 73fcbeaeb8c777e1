"""Event files for TensorBoard, one folder per seed."""

from pathlib import Path

from tensorboardX import SummaryWriter

from dgmarl.config.yaml import to_yaml
from dgmarl.errors import UsageError
from dgmarl.runs.callbacks import Callback, Progress, Start, TrainResult
from dgmarl.track import scalars


class TensorBoard(Callback):
    """Logs all numbers of all seeds over environment steps.

    >>> train("star-spread/5", out="runs/spread", callbacks=[TensorBoard()])

    Display them with `tensorboard --logdir runs`."""

    def __init__(self, folder: Path | str | None = None):
        """folder: folder of the event files; default: `tensorboard` in the run folder."""
        self.folder = folder
        self._writers: list[SummaryWriter] = []

    def on_start(self, start: Start) -> None:
        """Open a file per seed. Events after the last checkpoint of a resumed run are hidden,
        because they are logged again."""
        if self.folder is None and start.folder is None:
            raise UsageError("TensorBoard needs a folder if the run has none: TensorBoard(DIR).")
        folder = Path(self.folder or Path(start.folder or "") / "tensorboard")
        for k, steps in enumerate(start.steps):
            writer = SummaryWriter(
                str(folder / f"seed-{start.config.seed + k}"),
                purge_step=int(steps) + 1 if steps else None,
                filename_suffix=f".{int(steps)}",
            )
            if not steps:
                writer.add_text("configuration", f"```yaml\n{to_yaml(start.config)}\n```", 0)
            self._writers.append(writer)

    def on_evaluation(self, progress: Progress) -> None:
        for writer, (steps, values) in zip(self._writers, scalars(progress), strict=True):
            for name, value in values.items():
                writer.add_scalar(name, value, steps)
            writer.flush()

    def on_end(self, result: TrainResult) -> None:
        self.close()

    def close(self) -> None:
        """Flush and close the files."""
        for writer in self._writers:
            writer.close()
