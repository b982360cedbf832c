"""Episodes built ahead: at rest, one at a time, and at once for whom they are late."""

import threading
import time

import pytest

from hpml.marl.collect.building import Builder
from hpml.marl.env import Observation


class Workshop:
    """Builds numbered episodes, and knows how many were in the making at the same time."""

    def __init__(self, seconds=0.0):
        self.seconds, self.at_once, self.most, self.built = seconds, 0, 0, []

    def build(self, number):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        time.sleep(self.seconds)
        self.built.append((number, threading.current_thread() is threading.main_thread()))
        self.at_once -= 1
        return number, Observation(None)


def wait_for(happened):
    for _ in range(2000):
        if happened():
            return
        time.sleep(0.001)
    raise AssertionError("nothing happened for two seconds.")


def test_nothing_is_built_before_there_is_rest_but_what_is_needed():
    builder, workshop = Builder(), Workshop()
    orders = [builder.order(lambda i=i: workshop.build(i)) for i in range(4)]
    assert orders[2].take()[0] == 2
    assert workshop.built == [(2, True)]
    builder.resting.set()
    wait_for(lambda: len(workshop.built) == 4)
    assert workshop.built == [(2, True), (0, False), (1, False), (3, False)]
    assert [orders[i].take()[0] for i in (0, 1, 3)] == [0, 1, 3]


def test_two_episodes_are_never_built_at_once():
    builder, workshop = Builder(), Workshop(seconds=0.01)
    builder.resting.set()
    orders = [builder.order(lambda i=i: workshop.build(i)) for i in range(8)]
    assert [order.take()[0] for order in reversed(orders)] == list(range(8))[::-1]
    assert workshop.most == 1
    assert sorted(number for number, _ in workshop.built) == list(range(8))


def test_an_episode_that_cannot_be_built_says_so_to_whom_it_was_for():
    def broken():
        raise ValueError("no such map.")

    builder = Builder()
    order = builder.order(broken)
    builder.resting.set()
    with pytest.raises(ValueError, match="no such map"):
        order.take()
