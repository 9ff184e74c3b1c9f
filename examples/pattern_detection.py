"""Somebody guesses passwords: three failed logins in a row, and then one that works.

State: how far into the pattern each user is. It is a small state machine in a ValueState:

    0 --failed--> 1 --failed--> 2 --failed--> 3 --success--> alert, 0        success anywhere else: 0
                                              3 --failed--> 3
"""

import moorline as mo

LOGINS = [
    *[("eve", "failed"), ("bob", "failed"), ("eve", "failed"), ("eve", "failed"), ("bob", "success")],
    *[("eve", "failed"), ("eve", "success"), ("bob", "failed"), ("bob", "failed"), ("bob", "success")],
]
ENOUGH = 3


class GuessedPassword(mo.KeyedProcessFunction):
    """Emits the user who got in after three or more failures."""

    failures = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        failures = self.failures.value()
        if value[1] == "failed":
            self.failures.update(min(failures + 1, ENOUGH))
        else:
            self.failures.clear()
            if failures >= ENOUGH:
                yield ctx.current_key


def build(logins=LOGINS) -> mo.Job:
    """Pairs of user and outcome in; suspicious users out."""
    job = mo.Job("logins", parallelism=2)
    (
        job.source(mo.from_items(logins), uid="logins")
        .key_by(lambda login: login[0])
        .process(GuessedPassword(), uid="pattern")
        .sink(mo.collect("alerts"), uid="alerts")
    )
    return job


if __name__ == "__main__":
    for user in mo.run(build()).collected("alerts"):
        print(f"somebody may have guessed the password of {user}")
