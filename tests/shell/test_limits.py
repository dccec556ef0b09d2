"""What goes beyond a limit is refused in one sentence with the value and the limit, and the device stays as it was."""

import pytest

from qmadmin import open_device
from qmadmin.shell import notices
from qmadmin.shell.kinds import (
    CapacityCommand,
    Choice,
    ErrorQueueName,
    Expiration,
    MemorySize,
    MemoryThreshold,
    Number,
    SpaceName,
)
from qmadmin.shell.notices import UsageError
from qmcore.errors import InvalidArgumentError
from tests.fix_shell import Shell

INT_MAX = 2**31 - 1
PAGES_MAX = 2**40
LONG = "x" * 128
SHOWN = "x" * 57 + "..."


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A device with the queue space QSPACE and the queues errq and STRING, which holds a message."""
    shell = Shell(tmp_path_factory.mktemp("limits"))
    shell.lay_out()
    with open_device(shell.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"x")
    return shell


@pytest.fixture(scope="module")
def before(shell):
    """What is on the device."""
    return described(shell)


def described(shell):
    """Return everything that an administrator can change of a device."""
    with open_device(shell.device) as device, device.open_space("QSPACE") as space:
        return (
            device.entries(),
            device.table_of_contents(),
            [found.definition for found in device.spaces()],
            [(found.definition, space.usage(found.name).messages) for found in space.queues()],
        )


def space_line(**changed):
    """Return a complete qspacecreate with some of its arguments changed."""
    given = {"options": "", "name": "NEW", "key": 54321, "pages": 52, "queues": 5, "trans": 10, "procs": 10}
    given |= {"messages": 100, "errorq": "''", "init": "n", "blocking": 16} | changed
    return "qspacecreate " + " ".join(map(str, given.values()))


def queue_line(**changed):
    """Return a complete qcreate with some of its arguments changed."""
    given = {"options": "", "name": "NEW", "order": "fifo", "out_of_order": "none", "retries": 0, "delay": 0}
    given |= {"high": "100%", "low": "0%", "cmd": "''"} | changed
    return "qcreate " + " ".join(map(str, given.values()))


REFUSED = [
    ("crdl QUE -1 10", f"The offset must be 0 to {PAGES_MAX}, got -1"),
    (f"crdl QUE {PAGES_MAX + 1} 10", f"The offset must be 0 to {PAGES_MAX}, got {PAGES_MAX + 1}"),
    ("crdl QUE 3000 0", f"The size must be 1 to {PAGES_MAX}, got 0"),
    (f"crdl QUE 3000 {PAGES_MAX + 1}", f"The size must be 1 to {PAGES_MAX}, got {PAGES_MAX + 1}"),
    ("crdl QUE many 10", "The offset must be numeric: 'many'"),
    ("crdl QUE 3000 ten", "The size must be numeric: 'ten'"),
    ("crdl '' 3000 10", "Must specify device"),
    ("lidl 7", "QMEINVAL: the device list of '{device}' has no entry 7"),
    ("lidl 2147483648", f"The device list index must be 0 to {INT_MAX}, got 2147483648"),
    ("chdl 7 NEW", "QMEINVAL: the device list of '{device}' has no entry 7"),
    ("dsdl -y 7", "QMEINVAL: the device list of '{device}' has no entry 7"),
    (
        space_line(name="x" * 16),
        (
            "Queue space name length must be less than 16 characters: the queue space name"
            f" '{'x' * 16}' has 16 bytes, the limit is 15"
        ),
    ),
    (space_line(name="''"), "Must specify queue space name"),
    (space_line(name="a\x01"), r"QMEINVAL: the queue space name 'a\x01' has a character that cannot be printed"),
    (space_line(key=0), f"The IPC key must be 1 to {INT_MAX}, got 0"),
    (space_line(key=INT_MAX + 1), f"The IPC key must be 1 to {INT_MAX}, got {INT_MAX + 1}"),
    (space_line(pages=0), f"The size in disk pages must be 1 to {INT_MAX}, got 0"),
    (space_line(queues=0), f"The number of queues must be 1 to {INT_MAX}, got 0"),
    (space_line(trans=0), f"The number of transactions must be 1 to {INT_MAX}, got 0"),
    (space_line(procs=0), f"The number of processes must be 1 to {INT_MAX}, got 0"),
    (space_line(messages=0), f"The number of messages must be 1 to {INT_MAX}, got 0"),
    (
        space_line(errorq=LONG),
        (
            f"Error queue name length must be less than 128 characters: the error queue name '{SHOWN}' has 128 bytes,"
            " the limit is 127"
        ),
    ),
    (space_line(errorq="'a\x01'"), r"QMEINVAL: the error queue name 'a\x01' has a character that cannot be printed"),
    (space_line(init="maybe"), "The answer must be y or n, got 'maybe'"),
    (space_line(blocking=-1), f"The blocking factor must be 0 to {INT_MAX}, got -1"),
    (space_line(options="-A -1"), f"The number of actions must be 0 to {INT_MAX}, got -1"),
    (space_line(options="-n 12K"), "The memory for non-persistent messages must be numeric: '12K'"),
    ("qopen " + "x" * 16, "Queue space name length must be less than 16 characters: "),
    ("qopen ''", "Must specify queue space name"),
    ("qspacedestroy -y ''", "Must specify queue space name"),
    (queue_line(name=LONG), f"QMEINVAL: the queue name '{SHOWN}' has 128 bytes, the limit is 127"),
    (queue_line(name="''"), "Must specify queue name"),
    (queue_line(order="fifo,priority"), "QMEINVAL: in the queue order 'fifo,priority' fifo or lifo must be last"),
    (queue_line(retries=-1), f"The number of retries must be 0 to {INT_MAX}, got -1"),
    (queue_line(retries=INT_MAX + 1), f"The number of retries must be 0 to {INT_MAX}, got {INT_MAX + 1}"),
    (queue_line(delay=-1), f"The retry delay must be 0 to {INT_MAX}, got -1"),
    (queue_line(delay=INT_MAX + 1), f"The retry delay must be 0 to {INT_MAX}, got {INT_MAX + 1}"),
    (queue_line(high="9" * 30 + "m"), f"High threshold must be numeric: '{'9' * 30}m'"),
    (queue_line(low="x%"), "Low threshold must be numeric: 'x%'"),
    (queue_line(low="-1%"), "Low threshold must be numeric: '-1%'"),
    (queue_line(options="-d disk"), "The delivery policy must be persist or nonpersist, got 'disk'"),
    (queue_line(options="-n 80%"), "The memory threshold '80%' is not of the form nhigh,nlow,ncmd"),
    (queue_line(options="-n 80m,10m"), "Invalid high threshold type: '80m'"),
    (queue_line(options="-n 80%,90%"), "Low threshold must be less than high threshold: '90%'"),
    (queue_line(options="-n 80%,10b"), "High and low threshold types do not match: '80% and 10b'"),
    (queue_line(options=f"-n 80%,10%,{LONG}"), "Threshhold command length must be less than 128 characters: "),
    (queue_line(options="-e 5"), "The expiration time '5' is neither +seconds nor none"),
    (queue_line(options="-e +soon"), "The expiration time in seconds must be numeric: 'soon'"),
    (queue_line(options="-e +-5"), f"The expiration time in seconds must be 0 to {INT_MAX}, got -5"),
    (
        queue_line(options=f"-e +{INT_MAX + 1}"),
        f"The expiration time in seconds must be 0 to {INT_MAX}, got {INT_MAX + 1}",
    ),
    (f"qinfo {LONG}", f"QMEINVAL: the queue name '{SHOWN}' has 128 bytes, the limit is 127"),
    ("qset ''", "QMEINVAL: the queue name is empty"),
    (f"qdestroy -y {LONG}", f"QMEINVAL: the queue name '{SHOWN}' has 128 bytes, the limit is 127"),
    ("qdestroy -y STRING", "QMEINUSE: "),
    ("qspacedestroy -y QSPACE", "QMEINUSE: "),
    ("dsdl -y 0", "QMEINUSE: "),
    ("!echo a\0b", "A shell command cannot contain the character NUL"),
    ("!" + "x" * 3_000_000, "Shell command cannot be run: Argument list too long"),
]


@pytest.mark.parametrize(("line", "sentence"), REFUSED, ids=[line[:40] for line, _ in REFUSED])
def test_what_is_beyond_a_limit_is_refused_and_changes_nothing(shell, before, line, sentence):
    ran = shell.run(f"qopen QSPACE\n{line.replace('QUE', shell.device, 1) if line.startswith('crdl') else line}\n")
    assert ran.err.startswith(f"ERROR: {sentence.format(device=shell.device)}")
    assert ran.err.endswith(" (crque, line 2)\n")
    assert ran.err.count("\n") == 1
    assert ran.status == 1
    assert described(shell) == before


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (Number("retry delay", not_numeric=notices.DELAY_NOT_NUMERIC), "soon", 1201),
        (CapacityCommand(), LONG, 1215),
        (SpaceName(), "x" * 16, 1508),
        (ErrorQueueName(), LONG, 1518),
    ],
)
def test_refusal_has_the_number_of_its_sentence_in_the_catalogue(kind, text, number):
    with pytest.raises(UsageError) as refused:
        kind.read(text, {})
    assert refused.value.notice.number == number


def test_what_is_just_within_the_limits_is_taken(tmp_path):
    own = Shell(tmp_path)
    own.lay_out()
    lines = [
        f"crdl {own.device} {PAGES_MAX - 10} 10",
        f"crdl {own.device} 5000 1",
        space_line(name="x" * 15, key=262142, queues=1, trans=1, procs=1, messages=1, errorq="x" * 127, blocking=0),
        space_line(name="Y", key=INT_MAX, messages=INT_MAX, options="-A 0 -n 0"),
        "qopen QSPACE",
        queue_line(name="x" * 127, retries=INT_MAX, delay=INT_MAX, cmd="x" * 127),
        queue_line(name="a", options=f"-e +{INT_MAX} -n 100%,99%,{'x' * 127}", high="1m", low="0m"),
        queue_line(name="b", options="-e +0", high="1b", low="0"),
    ]
    ran = own.run("\n".join(lines))
    assert "ERROR" not in ran.err
    assert ran.status == 0


@pytest.mark.parametrize("text", ["none", "NONE", "None"])
def test_no_expiration_may_be_written_in_either_case(text):
    assert Expiration().read(text, {}) is None


def test_expiration_is_in_seconds():
    assert Expiration().read("+60", {}) == 60


def test_choice_may_be_written_in_either_case():
    kind = Choice("delivery policy", ("persist", "nonpersist"))
    assert kind.read("Persist", {}) == "persist"
    with pytest.raises(UsageError):
        kind.read("pers", {})


@pytest.mark.parametrize(("text", "value"), [("+5", 5), ("007", 7), ("0", 0), ("9", 9)])
def test_number_may_have_a_sign_and_zeros_in_front(text, value):
    assert Number("number", most=9).read(text, {}) == value


@pytest.mark.parametrize("text", ["-0", "-1", "10", "+10", "--1", "+-1", "-"])
def test_number_is_neither_negative_nor_beyond_its_limit(text):
    with pytest.raises(UsageError):
        Number("number", most=9).read(text, {})


def test_memory_is_read_with_its_unit():
    assert MemorySize().read("12b", {}).in_bytes(4096) == 0
    assert MemorySize().read("4097b", {}).in_bytes(4096) == 4096
    assert MemorySize().read("3B", {}).in_bytes(512) == 1536
    assert MemorySize().read("3", {}).in_bytes(512) == 1536
    with pytest.raises(UsageError, match="must be numeric"):
        MemorySize().read("b", {})


def test_command_of_a_memory_threshold_may_have_commas_or_be_missing():
    kind = MemoryThreshold()
    assert kind.read("80%,10%,mail me, now", {}).command == "mail me, now"
    assert kind.read("80%,10%", {}).command == ""
    assert kind.read("80%,10%,", {}).command == ""
    with pytest.raises(InvalidArgumentError):
        kind.read("80%,", {})
