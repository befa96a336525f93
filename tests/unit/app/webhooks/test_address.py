"""The addresses that webhooks may lead to, in every spelling."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tunefarm_app.webhooks.address import checked_addresses, parse_url
from tunefarm_app.webhooks.request import sign
from tunefarm_tuning.core.errors import InvalidInputError

PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "localhost",
    "LOCALHOST",
    "0.0.0.0",
    "0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[fe80::1]",
    "[fec0::1]",
    "[fd00::1]",
    "192.0.0.9",
    "192.88.99.1",
    "[3fff::1]",
    "[::ffff:0:7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[64:ff9b:1:7f00:0:1:808:808]",
    "[2606:4700:4700::5efe:10.0.0.1]",
    "[2606:4700:4700:0:200:5efe:10.0.0.1]",
]
LINK_LOCAL = ["169.254.1.1", "169.254.169.253", "[fe80::1]"]
METADATA = ["169.254.169.254", "2852039166", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "100.100.100.200"]
METADATA += [
    "168.63.129.16",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[64:ff9b:1:a9fe:a9:fe00::]",
    "[2002:a9fe:a9fe::1]",
]
METADATA += ["[::169.254.169.254]", "[::ffff:0:a9fe:a9fe]", "[2606:4700:4700::5efe:a9fe:a9fe]"]
MULTICAST = ["224.0.0.1", "224.0.1.1", "239.1.1.1", "[ff02::1]", "[ff0e::1]"]


def refused(url: str, *, allow_private: bool = False) -> str:
    with pytest.raises(InvalidInputError) as caught:
        checked_addresses(parse_url(url), allow_private=allow_private)
    return caught.value.code


@pytest.mark.parametrize("host", PRIVATE + LINK_LOCAL + METADATA + MULTICAST)
def test_only_public_addresses(host: str) -> None:
    assert refused(f"http://{host}:8080/hook") == "webhook-address"


@pytest.mark.parametrize("host", LINK_LOCAL + METADATA + MULTICAST)
def test_some_are_never_allowed(host: str) -> None:
    assert refused(f"https://{host}/", allow_private=True) == "webhook-address"


def test_who_runs_the_farm_reads_which_address_was_refused_and_who_registers_does_not() -> None:
    url = parse_url("https://hooks.example.org/")
    for allow_private, why in ((True, "webhooks may not use: link-local"), (False, "not public")):
        with capture_logs() as lines, pytest.raises(InvalidInputError, match=why) as caught:
            checked_addresses(url, allow_private=allow_private, resolve=lambda _h, _p: ("169.254.7.8",))
        assert "169.254" not in caught.value.message
        assert [(line["host"], line["address"]) for line in lines] == [("hooks.example.org", "169.254.7.8")]


def test_what_is_allowed() -> None:
    for host in ("8.8.8.8", "[2606:4700:4700::1111]", "134744072", "[::ffff:8.8.8.8]"):
        assert len(checked_addresses(parse_url(f"https://{host}/x"), allow_private=False)) == 1
    for host in ("127.0.0.1", "10.0.0.1", "[::1]", "localhost"):
        assert checked_addresses(parse_url(f"http://{host}/x"), allow_private=True)


@pytest.mark.parametrize("port", [1, 22, 25, 110, 445, 587, 993, 1023])
def test_no_ports_of_other_services(port: int) -> None:
    """A POST to a mail server would send mail; no webhook receiver listens there."""
    url = parse_url(f"https://8.8.8.8:{port}/")
    with pytest.raises(InvalidInputError, match=f"the port {port}") as caught:
        checked_addresses(url, allow_private=False)
    assert caught.value.code == "webhook-address"
    assert checked_addresses(url, allow_private=True)
    for allowed in (80, 443, 1024, 8443, 65535):
        assert checked_addresses(parse_url(f"https://8.8.8.8:{allowed}/"), allow_private=False)


def test_one_bad_address_of_a_name_is_enough() -> None:
    url = parse_url("https://hooks.example.org/")
    for bad in ("127.0.0.1", "fe80::1%eth0", "nonsense"):
        with pytest.raises(InvalidInputError, match="not public"):
            checked_addresses(url, allow_private=False, resolve=lambda _h, _p, bad=bad: ("8.8.8.8", bad))
    with pytest.raises(InvalidInputError, match="has no address"):
        checked_addresses(url, allow_private=False, resolve=lambda _h, _p: ())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://8.8.8.8/",
        "file:///etc/passwd",
        "8.8.8.8/hook",
        "https://",
        "https:///path",
        "https://user:password@8.8.8.8/",
        "https://8.8.8.8@127.0.0.1/",
        "https://8.8.8.8/#part",
        "https://8.8.8.8:99999/",
        "https://8.8.8.8:0/",
        "https://8.8.8.8:x/",
        "https://8.8.8.8/a b",
        "https://8.8.8.8/\r\nX: y",
        "https://8.8.8.8\\@127.0.0.1/",
        "https://bücher.example/",
        "https://[::1",
        "https://8.8.8.8/" + "x" * 2000,
    ],
)
def test_what_is_no_url_for_a_webhook(url: str) -> None:
    assert refused(url) == "webhook-url"


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "nowhere.invalid", "%31%32%37.0.0.1"])
def test_hosts_that_nobody_knows(host: str) -> None:
    assert refused(f"https://{host}/") == "webhook-address"


def test_the_parts_of_a_url() -> None:
    url = parse_url("HTTPS://Hooks.Example.org/a/b?c=d")
    assert (url.tls, url.host, url.port, url.path) == (True, "hooks.example.org", 443, "/a/b?c=d")
    url = parse_url("http://[::1]:81?x")
    assert (url.tls, url.host, url.port, url.path) == (False, "::1", 81, "/?x")


def test_the_specifications_own_example() -> None:
    """The example is from the tests of the reference implementations."""
    signature = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
