#!/usr/bin/python3
"""make.py BUILD NUMBER: a database as the daemon of BUILD leaves it when it is killed with accepted work, and what it
said of it: NUMBER.db and NUMBER.json beside this script. For the schema of each release, once, with its own build; what
is there is never made again."""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOM = 1 << 40
ASYNC = {"Prefer": "respond-async"}


class Daemon:
    def __init__(self, program, database):
        self.program, self.database = program, database
        arguments = [program, "--listen", "127.0.0.1:0", "--database", database]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[-1]

    def call(self, path, body=None, method="GET", headers=None):
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.url + path, data, method=method, headers=headers or {})
        if data:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def post(self, path, body=None, headers=None):
        return self.call(path, body, "POST", headers)

    def kill(self):
        self.process.kill()
        self.process.wait()
        # Brings the log home, and changes nothing else.
        subprocess.run([self.program, "--database", self.database, "--migrate"], check=True, stdout=subprocess.DEVNULL)


def request(layers, target=None, memory=ROOM, mode="training"):
    model = {"name": "fixture", "hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 8,
             "intermediate_size": 256, "vocab_size": 1000, "activation": "gelu", "norm": "layernorm",
             "position": "rope"}
    workload = {"mode": mode, "phase": "prefill", "batch_size": 1, "context_length": 64, "dtype": "float16"}
    if mode == "training":
        workload = {"mode": mode, "sequence_length": 128, "micro_batch_size": 1, "global_batch_size": 4,
                    "dtype": "bfloat16"}
    body = {"model": {"transformer": model}, "workload": workload, "strategy": {"tensor_parallel": 2}}
    if target:
        body["target"] = {"kind": target}
        body["deployment"] = {"devices": 2, "memory_bytes": memory}
    return body


def fill(daemon):
    requests = [request(2, "reference-queue"), request(3), request(2, "reference-slot", mode="inference"),
                request(4, "reference-queue", memory=1024)]
    answers = [daemon.post("/v1/plans", body) for body in requests]
    plans = [answer.get("plan") or answer["id"] for answer in answers]  # the last is rejected
    replay = daemon.post("/v1/plans/%s/replays" % plans[0])["id"]
    said = {"plans": [daemon.call("/v1/plans/" + plan) for plan in plans],
            "replays": [daemon.call("/v1/replays/" + replay)]}
    said["accepted"] = [daemon.post("/v1/plans", request(n, "reference-slot"), ASYNC)["id"] for n in range(40, 45)]
    return said


def write(said, file):
    lists = []
    for key, values in said.items():
        rows = ",\n".join(json.dumps(value, sort_keys=True, separators=(",", ":")) for value in values)
        lists.append('"%s": [\n%s\n]' % (key, rows))
    file.write("{\n" + ",\n".join(lists) + "\n}\n")


def main():
    build, number = sys.argv[1:]
    database = os.path.join(HERE, number + ".db")
    if os.path.exists(database):
        sys.exit(database + " is there already")
    daemon = Daemon(os.path.join(build, "blueprintd"), database)
    said = fill(daemon)
    daemon.kill()
    with open(os.path.join(HERE, number + ".json"), "w", encoding="ascii") as file:
        write(said, file)
    for suffix in "-wal", "-shm", ".lock":
        if os.path.exists(database + suffix):
            os.remove(database + suffix)


main()
