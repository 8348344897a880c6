"""The server of `natmix watch`: who gets an answer, and that nothing but the page and its numbers is one."""

import http.client
import json
import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

import natmix.watch
from natmix.cli import app
from natmix.watch.folder import WatchedFolder
from natmix.watch.server import WatchServer, is_loopback, serving

PAGE = Path(natmix.watch.__file__).parent / "page"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched") / "inside"
    folder.mkdir()
    (folder / "secret.txt").write_text("top secret")
    (folder.parent / "outside.txt").write_text("top secret")
    server = WatchServer(WatchedFolder(folder))
    thread = serving(server)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server, path, method="GET", host=None, **headers):
    """Status, headers and content of an answer; the path goes out as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host if host is not None else f"127.0.0.1:{server.server_port}")
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_it_listens_on_this_machine_alone_and_its_address_has_a_random_token(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.server_port != 0
    assert server.url == f"http://127.0.0.1:{server.server_port}/{server.token}/"
    assert len(server.token) >= 32
    other = WatchServer(server.folder)
    other.server_close()
    assert other.token != server.token


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "text/html"),
        ("page.css", "text/css"),
        ("page.js", "text/javascript"),
        ("charts.js", "text/javascript"),
    ],
)
def test_the_page_is_served_below_the_token(server, name, kind):
    status, headers, content = ask(server, f"/{server.token}/{name}")
    assert status == 200
    assert headers["Content-Type"].startswith(kind)
    assert content == (PAGE / (name or "index.html")).read_bytes()
    assert ask(server, f"/{server.token}/{name}", "HEAD")[::2] == (200, b"")


def test_the_numbers_are_json(server):
    status, headers, content = ask(server, f"/{server.token}/data")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    found = json.loads(content)
    assert found["title"] == "inside"
    assert [run["state"] for run in found["runs"]] == ["waiting"]


TRAVERSALS = [
    "secret.txt",
    "../outside.txt",
    "..%2foutside.txt",
    "%2e%2e/outside.txt",
    "..%252foutside.txt",
    "..\\outside.txt",
    "....//outside.txt",
    "page/../../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "%00",
    "data%00",
    "data/",
    "data?x=1",
    "./data",
    "page.js/../data",
    "folder.py",
    "index.html",
    "page%2ejs",
    "\u00e9".encode().decode("latin-1"),
]


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_to_a_file(server, path):
    status, _, content = _raw(server, f"GET /{server.token}/{path} HTTP/1.1")
    assert status == 404
    assert content == b"Not Found\n"


@pytest.mark.parametrize(
    "path",
    ["/", "/data", "/page.js", "//data", "/x/data", "/{token}", "/{token}x/data", "/{part}/data",
     "/%2e/{token}/data", "/x/../{token}/data", "http://127.0.0.1/{token}/data", "*", "/{upper}/data"],
)  # fmt: skip
def test_without_the_token_there_is_nothing(server, path):
    token = server.token
    path = path.format(token=token, part=token[:-1], upper=token.swapcase())
    status, _, content = _raw(server, f"GET {path} HTTP/1.1")
    assert (status, content) == (404, b"Not Found\n")


def _raw(server, line, host="localhost", extra=""):
    """What comes back for a request line as it is."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(f"{line}\r\nHost: {host}\r\nConnection: close\r\n{extra}\r\n".encode("latin-1"))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), content


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:9000", "[::1]:8000", "LOCALHOST:1"])
def test_it_answers_to_names_of_this_machine_at_any_port(server, host):
    """The port may be that of a tunnel."""
    assert ask(server, f"/{server.token}/data", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "", "[::1", "::1",
     "localhost:80:80", "evil.example:80", "127.0.0.1@evil.example", "localhost, evil.example", "0.0.0.0"],
)  # fmt: skip
def test_another_host_is_refused_though_the_token_is_right(server, host):
    """DNS rebinding: a site whose name leads here sends that name."""
    assert ask(server, f"/{server.token}/data", host=host)[0] == 421


def test_a_request_without_a_host_is_refused(server):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(f"GET /{server.token}/data HTTP/1.0\r\n\r\n".encode())
        assert b" 421 " in connection.recv(200)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "<script>"])
def test_other_methods_do_nothing(server, method):
    status, head, content = _raw(server, f"{method} /{server.token}/data HTTP/1.1")
    assert status == 501
    assert content == b"Not Implemented\n"
    assert "Access-Control" not in head


def test_nonsense_gets_an_error_and_the_server_lives(server):
    for line in (
        "nonsense",
        "GET",
        f"GET /{server.token}/data HTTP/9.9",
        "GET " + "x" * 70_000 + " HTTP/1.1",
    ):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
            connection.sendall(f"{line}\r\n\r\n".encode())
            connection.recv(300)
    assert ask(server, f"/{server.token}/data")[0] == 200


def test_every_answer_forbids_what_a_page_does_not_need(server):
    for path in (f"/{server.token}/", f"/{server.token}/data", "/nothing"):
        _, headers, _ = ask(server, path, Origin="http://evil.example")
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert not [name for name in headers if name.lower().startswith(("access-control", "set-cookie"))]
        assert "Python" not in headers["Server"]


def test_the_page_asks_nobody_else_and_makes_no_html_of_what_it_is_told():
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\bon\w+=|style=", text
        )


def test_loopback_addresses():
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    assert not any(
        map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org"))
    )


def test_a_server_for_others_answers_to_addresses_and_its_own_name(tmp_path):
    server = WatchServer(WatchedFolder(tmp_path), "0.0.0.0")
    try:
        assert server.answers_to(f"{socket.gethostname()}:80")
        assert server.answers_to("10.1.2.3:80")
        assert not server.answers_to("evil.example")
        assert not server.answers_to(None)
        assert socket.gethostname() in server.url
    finally:
        server.server_close()


# The command ----------------------------------------------------------------------------------------


@pytest.fixture
def ended_at_once(monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("natmix.cli.watch.time.sleep", interrupt)


def test_the_command_prints_the_address(tmp_path, ended_at_once):
    outcome = CliRunner().invoke(app, ["watch", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", outcome.output)
    assert outcome.stderr == ""


def test_the_command_listens_for_others_only_if_told_twice(tmp_path, ended_at_once):
    refused = CliRunner().invoke(app, ["watch", str(tmp_path), "--host", "0.0.0.0"])
    assert refused.exit_code == 2
    assert "--allow-remote" in refused.stderr
    allowed = CliRunner().invoke(app, ["watch", str(tmp_path), "--host", "0.0.0.0", "--allow-remote"])
    assert allowed.exit_code == 0, allowed.output
    assert "other machines reach this page" in allowed.stderr


def test_a_folder_or_a_port_that_cannot_be_used_gets_one_sentence(tmp_path, server, ended_at_once):
    for arguments, words in (
        ([str(tmp_path / "no")], "There is no folder"),
        ([str(tmp_path), "--port", str(server.server_port)], "in use"),
        ([str(tmp_path), "--port", "99999"], "from 0 to 65535"),
        ([str(tmp_path), "--host", "127.0.0.999", "--allow-remote"], "cannot listen"),
    ):
        outcome = CliRunner().invoke(app, ["watch", *arguments])
        assert outcome.exit_code == 2, outcome.output
        assert words in outcome.stderr
        assert len(outcome.stderr.splitlines()) == 1
