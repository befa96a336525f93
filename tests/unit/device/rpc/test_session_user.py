"""The user who runs sessions: chosen by the settings and by what the agent may do, and handed nothing of the agent's."""

from __future__ import annotations

import getpass
import os
import pwd
from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_workers.device.rpc import session_user
from tunefarm_workers.device.rpc.session_user import Chosen, SessionFolder, SessionUser, choose

IS_ROOT = os.geteuid() == 0
OTHER = "nobody"


def test_without_such_a_user_sessions_are_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_user, "DEFAULT_NAME", "tunefarm-none")
    chosen = choose(None)
    assert chosen == Chosen(user=None, why="there is no user tunefarm-none on this machine")
    own = getpass.getuser()
    assert chosen.to_json() == {"user": own, "agent": own, "why": chosen.why}


def test_a_named_user_must_be_there() -> None:
    with pytest.raises(InvalidInputError, match="there is no user tunefarm-none") as caught:
        choose("tunefarm-none")
    assert caught.value.code == "no-session-user"


def test_the_agents_own_user_may_be_named() -> None:
    assert choose(pwd.getpwuid(os.geteuid()).pw_name).user is None


@pytest.mark.skipif(IS_ROOT, reason="root may start processes of other users")
def test_an_ordinary_user_may_not_start_anothers_processes() -> None:
    with pytest.raises(InvalidInputError, match="CAP_SETUID"):
        choose(OTHER)


def test_the_other_user_is_handed_nothing_of_the_agents() -> None:
    environment = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "CUDA_CACHE_PATH": "/c",
        "TUNEFARM_SANDBOX": "required",
        "AWS_SECRET_ACCESS_KEY": "s",
        "TUNEFARM_API_KEY": "k",
        "HOME": "/root",
        "SSH_AUTH_SOCK": "/s",
    }
    user = SessionUser(name="u", uid=7, gid=8)
    assert user.environment(environment, Path("/f")) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "CUDA_CACHE_PATH": "/c",
        "TUNEFARM_SANDBOX": "required",
        "HOME": "/f",
        "USER": "u",
        "LOGNAME": "u",
    }
    assert user.options() == {"user": 7, "group": 8, "extra_groups": [], "cwd": "/"}


@pytest.mark.skipif(not IS_ROOT, reason="needs root, to give a folder away")
def test_a_folder_is_the_other_users_and_goes() -> None:
    entry = pwd.getpwnam(OTHER)
    folder = SessionFolder(SessionUser(name=OTHER, uid=entry.pw_uid, gid=entry.pw_gid))
    state = folder.path.stat()
    assert (state.st_uid, state.st_mode & 0o777) == (entry.pw_uid, 0o700)
    folder.close()
    assert not folder.path.parent.exists()
