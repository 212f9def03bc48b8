import pytest

from hubbub import CustomEvent, Hub

pytestmark = pytest.mark.anyio


async def test_emit(journal, ports, eventually):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        hub.subscribe("*", got.append)
        await hub.publish(CustomEvent.of("a:b", x=1))
        r = await hub.open("x", "y")
        assert r.accepted
        assert [e.type for e in got] == ["a:b", "session:open"]
        import anyio

        await anyio.sleep(86400)
