"""Forks of a process in which a thread looks at all that is stored."""

import threading

import pytest

from qmcore.purpose import Purpose
from qmstorage.sqlite import volume as volumes


@pytest.fixture
def volume(file_store):
    return file_store.device.volume_of(file_store.device.path)


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_fork_comes_between_two_questions_and_does_not_starve(volume):
    asking, enough = threading.Event(), threading.Event()

    def look(_unit):
        while not enough.is_set():
            asking.set()
            made.run_unlocked(lambda: None)

    with volume.snapshot() as made:
        thread = in_thread(lambda: made.read(look))
        asking.wait()
        paused = [volume.pause() and volume.resume() is None for _ in range(50)]
        enough.set()
        thread.join()
    assert all(paused)


def test_a_fork_waits_for_a_question_that_takes_long(volume, monkeypatch):
    monkeypatch.setattr(volumes, "_FORK_SECONDS", 0.05)
    asking, answered = threading.Event(), threading.Event()

    def look(_unit):
        asking.set()
        answered.wait()

    with volume.snapshot() as made:
        thread = in_thread(lambda: made.read(look))
        asking.wait()
        threading.Timer(0.2, answered.set).start()
        assert volume.pause()
        assert answered.is_set()
        volume.resume()
        thread.join()


def test_none_is_opened_and_none_let_go_of_in_the_midst_of_a_fork(volume):
    opened, leave, left = threading.Event(), threading.Event(), threading.Event()

    def look(entered):
        with volume.snapshot():
            entered.set()
            leave.wait()
        left.set()

    there = threading.Event()
    first = in_thread(lambda: look(there))
    there.wait()
    assert volume.pause()
    second = in_thread(lambda: look(opened))
    leave.set()
    assert not opened.wait(0.1)
    assert not left.is_set()
    volume.resume()
    for thread in (first, second):
        thread.join(60)
        assert not thread.is_alive()
    assert len(volume._snapshots) == 0


def test_a_fork_that_has_to_give_up_lets_all_go_on(volume, monkeypatch):
    monkeypatch.setattr(volumes, "_FORK_SECONDS", 0.05)
    with volume.snapshot() as made, volume.quiesced(1):
        assert not volume.pause()
        assert made.read(lambda unit: unit.spaces.listed()) == []
    assert volume.pause()
    volume.resume()
    assert volume.write(lambda unit: unit.spaces.listed(), Purpose.ADMINISTRATION) == []


def test_a_process_may_fork_at_each_step_of_the_walk(file_device, start):
    """Each child closes what it has inherited, also where a statement stands in the midst of its rows."""
    child = start(
        "from qmstorage import soundness\n"
        "soundness._ROWS = 1\n"
        "device = open_device(sys.argv[1])\n"
        "space = device.open_space('SPACE')\n"
        "space.enqueue_many('Q', ['x'] * 5)\n"
        "def fork():\n"
        "    forks.append(1)\n"
        "    if os.fork() == 0:\n"
        "        with open_device(sys.argv[1]) as mine, mine.open_space('SPACE') as own:\n"
        "            own.enqueue('Q', 'child')\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0\n"
        "forks = []\n"
        "with device.volume_of(device.path).snapshot() as made:\n"
        "    found = space.queues()\n"
        "    definition = device.space('SPACE')\n"
        "    step = lambda: made.run_unlocked(fork)\n"
        "    faults = made.read(lambda unit: unit.soundness.faults(definition, found, 4096, step))\n"
        "space.enqueue('Q', 'after')\n"
        "say(len(forks), len(faults), space.usage('Q').messages)\n"
        "device.close()\n",
        file_device.path,
    )
    forks, faults, messages = map(int, child.line().split())
    child.finish()
    # A part, at least, for each of the five messages that the walk looks at.
    assert forks > 5
    assert (faults, messages) == (0, 6 + forks)
