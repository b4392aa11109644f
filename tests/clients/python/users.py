"""redis-py as users of a Quorate cluster: users.py HOST:PORT PASSWORD-OF-ROOT"""

import sys

import redis

host, port = sys.argv[1].rsplit(":", 1)


def connect(protocol, **options):
    return redis.Redis(host=host, port=int(port), protocol=protocol, decode_responses=True, **options)


def raises(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


for protocol in (2, 3):
    raises(redis.AuthenticationError, lambda: connect(protocol).get("k"))
    raises(redis.AuthenticationError, lambda: connect(protocol, username="root", password="wrong").get("k"))
    root = connect(protocol, username="root", password=sys.argv[2])
    assert root.acl_whoami() == "root"
    assert root.acl_setuser(
        "ann", enabled=True, reset=True, passwords=["+secret"], keys=["app:*"], categories=["+@read"], commands=["+set"]
    )
    assert root.acl_users() == ["ann", "default", "root"], root.acl_users()
    user = root.acl_getuser("ann")
    assert list(user["flags"]) == ["on"] and len(user["passwords"]) == 1, user
    assert user["keys"] in ("~app:*", ["~app:*"]) and "string" in root.acl_cat() and "get" in root.acl_cat("string")

    ann = connect(protocol, username="ann", password="secret")
    assert ann.set("app:k", "v") and ann.get("app:k") == "v"
    raises(redis.exceptions.NoPermissionError, lambda: ann.get("other"))
    raises(redis.exceptions.NoPermissionError, lambda: ann.delete("app:k"))
    raises(redis.exceptions.NoPermissionError, lambda: ann.acl_list())
    log = root.acl_log()
    assert log and any(entry["reason"] == "key" and entry["object"] == "other" for entry in log), log
    assert root.acl_log_reset() and len(root.acl_genpass()) == 64
    assert root.execute_command("ACL", "SETUSER", "ann", "(~shared:*", "+get)")
    assert ann.get("shared:k") is None
    raises(redis.exceptions.NoPermissionError, lambda: ann.set("shared:k", "v"))
    assert len(root.acl_getuser("ann")["selectors"]) == 1
    assert root.acl_deluser("ann") == 1
    raises(redis.AuthenticationError, lambda: ann.get("app:k"))

print("verified")
