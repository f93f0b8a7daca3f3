"""Examples of every command, which its ``--help`` shows."""

from __future__ import annotations

#: By command: command lines, and what they do.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "report": (
        ("stallscope report logs/run-42", "a summary in the terminal"),
        (
            "stallscope report logs/run-42 --baseline logs/synthetic --format html",
            "a page, with a baseline",
        ),
        ("stallscope report runs#clean", "one run of a store, by its name or the start of its id"),
        (
            "stallscope report runs --format html,json --out nightly",
            "all runs of a store, with an index",
        ),
        ("stallscope report logs/run-42 --fail-if 'input.share>20%'", "a gate for a pipeline"),
    ),
    "summary": (("stallscope summary logs/run-42", "verdict, stragglers and gain in six lines"),),
    "compare": (
        ("stallscope compare logs/before logs/after", "what changed, in the terminal"),
        ("stallscope compare runs#7a7d runs#9c55 --format html", "two runs of a store, as a page"),
    ),
    "scaling": (
        (
            "stallscope scaling logs/ranks-1 logs/ranks-4 logs/ranks-8",
            "efficiency over 1, 4, 8 ranks",
        ),
    ),
    "tune": (
        ("stallscope tune autotune.csv logs/run-42", "settings that suit this job's gradients"),
    ),
    "inspect": (
        ("stallscope inspect logs/", "which files have logs, of which runs"),
        ("stallscope inspect train.log", "a pattern for lines that no parser knows"),
    ),
    "export": (
        (
            "stallscope export logs/run-42 --format perfetto --out run-42.pftrace",
            "for ui.perfetto.dev",
        ),
        (
            "stallscope export logs/run-42 --format parquet --out steps.parquet",
            "steps and ranks, for pandas",
        ),
    ),
    "watch": (
        ("stallscope watch logs/run-42", "report when the job hangs, and which rank is missing"),
        (
            "stallscope watch ssh://node-1/logs/run-42 --notify https://example.com/hooks/training",
            "POST each event",
        ),
        (
            "stallscope watch logs --when 'stopped.seconds>60' --notify 'mail -s hangs ada@example.com'",
            "send mail once a job hangs for a minute",
        ),
        ("stallscope watch runs --once --format json", "look once, for a script"),
    ),
    "netcheck": (
        ("horovodrun -np 4 stallscope netcheck logs/run-42", "under horovodrun"),
        ("torchrun --nproc-per-node 4 -m stallscope netcheck logs/run-42", "under torchrun"),
    ),
    "dashboard": (
        ("stallscope dashboard logs/run-42", "one run, also while it trains"),
        ("stallscope dashboard runs --port 8080", "all runs of a store"),
    ),
    "collect": (
        ("stallscope collect logs/run-42 --to runs", "copy logs into a store"),
        (
            "stallscope collect s3://bucket/logs --to runs --follow",
            "and continue while the job writes them",
        ),
    ),
    "runs": (
        (
            "stallscope runs runs --where 'verdict=input and ranks>=8'",
            "runs that wait for their input",
        ),
        ("stallscope runs runs --sort step_ms --json", "all of them, for a script"),
    ),
    "rm": (("stallscope rm runs#7a7d --yes", "remove one run"),),
    "verify": (("stallscope verify runs", "read every file of a store"),),
    "demo": (("stallscope demo --no-serve", "only the reports on the sample runs"),),
    "completion": (
        (
            "stallscope completion bash > ~/.local/share/bash-completion/completions/stallscope",
            "for bash",
        ),
        ("stallscope completion zsh > ~/.zfunc/_stallscope", "for zsh, with ~/.zfunc in its fpath"),
        ("stallscope completion fish > ~/.config/fish/completions/stallscope.fish", "for fish"),
    ),
}


def examples_of(command: str) -> str:
    """Return the examples of a command as text for the end of its help."""
    lines = [f"  {line}\n      {does}" for line, does in EXAMPLES[command]]
    return "examples:\n" + "\n".join(lines)
