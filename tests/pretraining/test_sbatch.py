"""The job for Slurm, with the two commands of Slurm that it calls played by small scripts."""

import subprocess

import pytest


@pytest.fixture
def submit(checkout, tmp_path):
    """Run the job; what it called, one line each. `happens` is what the run does, in shell."""

    def submit(happens: str, *words: str, code: int = 0) -> list[str]:
        called = tmp_path / "called"
        called.write_text("")
        commands = tmp_path / "commands"
        commands.mkdir(exist_ok=True)
        for name, body in {
            "srun": f'echo "srun $*" >> {called}\n{happens}',
            "scontrol": f'echo "scontrol $*" >> {called}\n[ "$1" = show ] && printf "node7\\nnode8\\n"',
        }.items():
            (commands / name).write_text(f"#!/bin/bash\n{body}\n")
            (commands / name).chmod(0o755)
        environment = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "12"}
        done = subprocess.run(
            ["bash", checkout / "examples" / "pretrain.sbatch", *words],
            env={"PATH": f"{commands}:/usr/bin:/bin", "RUN": "run", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (code, "")
        return called.read_text().splitlines()

    return submit


def test_every_node_starts_one_launcher_that_meets_the_others_on_the_first(submit):
    asked, started = submit("mkdir -p run/model", "--schedule.total-steps", "7")
    assert asked == "scontrol show hostnames node[7-8]"
    assert started.startswith("srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=gpu")
    assert "--rdzv-endpoint=node7:29500 --rdzv-id=12-0" in started
    assert started.endswith(
        "-m albert pretrain xxlarge --data corpus --output run --parallelism sharded --schedule.total-steps 7"
    )


def test_a_job_whose_time_was_over_is_queued_again(submit):
    assert submit("mkdir -p run/checkpoints/step-00000100; exit 1", code=1)[2:] == ["scontrol requeue 12"]
    assert submit("mkdir -p run/checkpoints/step-00000200; exit 1", code=1)[2:] == ["scontrol requeue 12"]


def test_a_job_that_is_done_or_came_no_further_is_not_queued_again(submit):
    assert not submit("exit 78", code=78)[2:]
    assert not submit("mkdir -p run/checkpoints/step-00000100 run/model")[2:]


def test_slurm_is_told_to_signal_before_the_end_and_to_requeue(checkout):
    text = (checkout / "examples" / "pretrain.sbatch").read_text()
    assert "#SBATCH --signal=TERM@300\n" in text and "#SBATCH --requeue\n" in text
