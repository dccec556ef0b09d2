"""Many processes that begin at the same moment on one file, which nobody has open by then: all get through."""

from qmadmin.opening import create_device, open_device
from tests.fix_store import drain, make_queue, space_definition

PROCESSES, ROUNDS = 80, 3

HERD = """
# What loads late is loaded before, once for all.
import qmstorage.sqlite.handoff_requests, qmstorage.sqlite.opening

_, path, processes, rounds = sys.argv
begin, begun = os.pipe()

def work(own):
    with open_device(path) as device, device.open_space("SPACE") as space:
        for _ in range(int(rounds)):
            space.enqueue("IN", own)
            with space.transaction():
                space.enqueue("OUT", space.dequeue("IN", wait=60).body)

children = []
for number in range(int(processes)):
    child = os.fork()
    if not child:
        os.close(begun)
        # It ends for all at once.
        os.read(begin, 1)
        status = 1
        try:
            work(str(number))
            os.write(1, b"done\\n")
            status = 0
        except QueueError as error:
            print(error, file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
os.close(begun)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_all_of_a_herd_get_through(tmp_path, start):
    path = tmp_path / "QUE"
    with create_device(path, 10_000) as device:
        wide = {"processes": 2 * PROCESSES, "transactions": 2 * PROCESSES}
        device.create_space(space_definition(pages=5_000, **wide))
        with device.open_space("SPACE") as space:
            make_queue(space, "IN")
            make_queue(space, "OUT")
    child = start(HERD, path, PROCESSES, ROUNDS)
    for _ in range(PROCESSES):
        child.expect("done")
    assert child.finish() == ""
    with open_device(path) as device, device.open_space("SPACE") as space:
        assert sorted(drain(space, "OUT")) == sorted(str(number) for number in range(PROCESSES) for _ in range(ROUNDS))
        assert drain(space, "IN") == []
