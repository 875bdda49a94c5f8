# SPDX-License-Identifier: Apache-2.0
"""Holds deploy/kubernetes and deploy/image to rules that a cluster would enforce too late.

  python3 tests/deploy/kubernetes_test.py

A rule is a function that yields what is wrong. MUTATIONS breaks every rule at least once, and the
rule must notice. Needs PyYAML (Debian: python3-yaml), and no cluster.
"""

import copy
import os
import re
import shutil
import subprocess
import unittest

import yaml

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MANIFESTS = os.path.join(ROOT, "deploy", "kubernetes")
CARDS = os.path.join(ROOT, "deploy", "kubernetes-cuda")
CONTAINERFILE = os.path.join(ROOT, "deploy", "image", "Containerfile")
READY_SERVICE = "flash.v1.Inference"
# What the server takes after its drain timeout for the last writes.
LAST_WRITES_SECONDS = 2


class World:
    """All manifests and the Containerfile, as one thing to judge and to break."""

    def __init__(self, documents, containerfile):
        self.documents = documents
        self.containerfile = containerfile

    def of_kind(self, kind):
        return [document for document in self.documents if document["kind"] == kind]

    @property
    def deployment(self):
        return self.of_kind("Deployment")[0]

    @property
    def pod(self):
        return self.deployment["spec"]["template"]["spec"]

    @property
    def container(self):
        return self.pod["containers"][0]

    @property
    def environment(self):
        return {entry["name"]: entry.get("value") for entry in self.container.get("env", [])}

    @property
    def headless(self):
        return next((s for s in self.of_kind("Service") if s["spec"].get("clusterIP") == "None"),
                    None)

    def ports(self):
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def kustomization():
    return yaml.safe_load(read(os.path.join(MANIFESTS, "kustomization.yaml")))


def load_world():
    """The manifests that the kustomization names."""
    documents = []
    for name in kustomization()["resources"]:
        documents += [d for d in yaml.safe_load_all(read(os.path.join(MANIFESTS, name))) if d]
    return World(documents, read(CONTAINERFILE))


# ---------------------------------------------------------------- rules


def probes_ask_different_services(world):
    for name, service in (("startupProbe", READY_SERVICE), ("readinessProbe", READY_SERVICE),
                          ("livenessProbe", "")):
        probe = world.container.get(name, {}).get("grpc")
        if probe is None:
            yield f"there is no gRPC {name}"
        elif probe.get("service") != service:
            yield f"{name} asks {probe.get('service')!r} and not {service!r}"


def probes_reach_the_grpc_port(world):
    listen = world.environment.get("FLASH_LISTEN", "")
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        port = world.container.get(name, {}).get("grpc", {}).get("port")
        if port != world.ports().get("grpc"):
            yield f"{name} asks port {port}"
    if listen != f"0.0.0.0:{world.ports().get('grpc')}":
        yield f"FLASH_LISTEN is {listen}, which the kubelet does not reach on the gRPC port"


def liveness_is_slower_than_readiness(world):
    def patience(name):
        probe = world.container.get(name, {})
        return probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    if patience("livenessProbe") < 4 * patience("readinessProbe"):
        yield "a pod is restarted soon after it stops being ready"
    if patience("startupProbe") < 60:
        yield "a model has less than a minute to load"
    if world.container.get("startupProbe", {}).get("periodSeconds") != 1:
        yield "a loaded model is not noticed within a second"


def selectors_match_the_pods(world):
    labels = world.deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = {"Deployment": world.deployment["spec"]["selector"]["matchLabels"]}
    for service in world.of_kind("Service"):
        selectors["Service " + service["metadata"]["name"]] = service["spec"].get("selector")
    for spread in world.pod.get("topologySpreadConstraints", []):
        selectors["topology spread"] = spread["labelSelector"]["matchLabels"]
    for owner, selector in selectors.items():
        if not selector or not selector.items() <= labels:
            yield f"the selector of {owner} matches no pod"


def named_ports_exist(world):
    for service in world.of_kind("Service"):
        for port in service["spec"]["ports"]:
            if port.get("targetPort") not in world.ports():
                yield f"{service['metadata']['name']} sends to {port.get('targetPort')}"


def container_ports_are_the_image_s(world):
    exposed = re.search(r"^EXPOSE (.*)$", world.containerfile, re.M)
    exposed = [int(port) for port in exposed.group(1).split()] if exposed else []
    if sorted(exposed) != sorted(world.ports().values()):
        yield f"the image exposes {exposed} and the pod {world.ports()}"


def memory_is_requested_in_full(world):
    resources = world.container.get("resources", {})
    for kind in ("memory", "cpu"):
        request = resources.get("requests", {}).get(kind)
        limit = resources.get("limits", {}).get(kind)
        if request is None or request != limit:
            yield f"{kind}: request {request}, limit {limit}"


def images_are_fixed(world):
    bases = re.findall(r"^(?:FROM|ARG BASE=)\s*(\S+)", world.containerfile, re.M)
    for image in [world.container["image"]] + [base for base in bases if base != "${BASE}"]:
        name = image.rsplit("/", 1)[-1]
        if "@sha256:" not in image and (":" not in name or name.endswith(":latest")):
            yield f"the image {image} is whatever is newest"


def pod_is_restricted(world):
    """The Pod Security Standard `restricted`, and what it leaves open."""
    pod, container = world.pod.get("securityContext", {}), world.container.get("securityContext", {})
    wanted = [
        (pod.get("runAsNonRoot"), True, "runAsNonRoot"),
        (pod.get("seccompProfile", {}).get("type"), "RuntimeDefault", "seccompProfile"),
        (container.get("allowPrivilegeEscalation"), False, "allowPrivilegeEscalation"),
        (container.get("readOnlyRootFilesystem"), True, "readOnlyRootFilesystem"),
        (container.get("capabilities", {}).get("drop"), ["ALL"], "capabilities.drop"),
        (container.get("capabilities", {}).get("add"), None, "capabilities.add"),
        (container.get("privileged"), None, "privileged"),
        (container.get("runAsUser"), None, "runAsUser of the container"),
        (world.pod.get("automountServiceAccountToken"), False, "automountServiceAccountToken"),
    ]
    wanted += [(world.pod.get(key), None, key) for key in ("hostNetwork", "hostPID", "hostIPC")]
    for actual, expected, name in wanted:
        if actual is not expected and actual != expected:
            yield f"{name} is {actual}"
    if len(world.pod["containers"]) != 1 or world.pod.get("initContainers"):
        yield "there are containers that these rules do not look at"
    for port in world.container["ports"]:
        if "hostPort" in port:
            yield f"the port {port['name']} is opened on the node"


def user_is_the_image_s(world):
    user = re.search(r"^USER (\d+):(\d+)$", world.containerfile, re.M)
    context = world.pod.get("securityContext", {})
    ids = [str(context.get("runAsUser")), str(context.get("runAsGroup"))]
    if user is None or list(user.groups()) != ids or "0" in ids:
        yield f"the pod runs as {ids}, the image as {user and user.groups()}"


def service_links_are_off(world):
    if world.pod.get("enableServiceLinks") is not False:
        yield "a Service called flash would set FLASH_PORT"


def grace_covers_the_drain(world):
    hook = world.container.get("lifecycle", {}).get("preStop", {})
    if set(hook) - {"sleep"}:
        yield f"preStop needs {set(hook)} in the image"
    before = hook.get("sleep", {}).get("seconds", 0)
    grace = world.pod.get("terminationGracePeriodSeconds", 30)
    if before < 1:
        yield "the pod is told to stop before clients can know"
    drain = world.environment.get("FLASH_DRAIN_TIMEOUT", "25s")
    if not drain.endswith("s") or not drain[:-1].isdigit():
        yield f"FLASH_DRAIN_TIMEOUT is {drain}, not seconds"
    elif grace < before + int(drain[:-1]) + LAST_WRITES_SECONDS:
        yield f"{grace} s of grace are less than {before} s of preStop, {drain} of drain and the last writes"


def rollout_keeps_capacity(world):
    update = world.deployment["spec"].get("strategy", {}).get("rollingUpdate", {})
    if update.get("maxUnavailable") != 0 or update.get("maxSurge", 0) == 0:
        yield f"a rollout takes pods away first: {update}"
    if world.deployment["spec"].get("replicas", 1) < 2:
        yield "one replica leaves nothing to balance"


def grpc_clients_find_every_pod(world):
    if world.headless is None:
        yield "there is no headless Service"
    elif world.headless["spec"].get("publishNotReadyAddresses"):
        yield "clients are sent to pods that are not ready"
    for service in world.of_kind("Service"):
        for port in service["spec"]["ports"]:
            if port.get("name") == "grpc" and port.get("appProtocol") != "kubernetes.io/h2c":
                yield f"{service['metadata']['name']} does not say that it speaks HTTP/2"


def settings_come_from_the_environment(world):
    if world.container.get("command") != ["flash-server"] or world.container.get("args"):
        yield "flags on the command line win over FLASH_MODEL and FLASH_LISTEN"
    for name in ("FLASH_MODEL", "FLASH_LISTEN", "FLASH_METRICS_LISTEN"):
        if not world.environment.get(name):
            yield f"{name} is not set"
    for name, value in world.environment.items():
        if not re.fullmatch(r"FLASH_[A-Z][A-Z_]*", name) or not isinstance(value, str):
            yield f"{name}={value!r} is not a setting of the server"


def metrics_listen_outside_of_loopback(world):
    wanted = f"0.0.0.0:{world.ports().get('metrics')}"
    if world.environment.get("FLASH_METRICS_LISTEN") != wanted:
        yield "metrics cannot be scraped from outside of the pod"


def image_starts_the_server(world):
    text = world.containerfile
    model = world.environment.get("FLASH_MODEL")
    entry = f'ENTRYPOINT ["flash-server", "--model={model}", "--listen=0.0.0.0:8500"]'
    if entry not in text:
        yield f"the entry point is not {entry}"
    if f"COPY deploy/models/demo/ {model}/" not in text:
        yield f"the image has no model in {model}"
    for program in ("flash-server", "flash-client", "flash-loadtest"):
        if f"/build/bin/{program}" not in text:
            yield f"the image lacks {program}"
    final = text[text.rindex("\nFROM "):]
    if re.search(r"-dev\b|cmake|g\+\+ ", final):
        yield "the final stage has tools that only the build needs"


RULES = [
    probes_ask_different_services, probes_reach_the_grpc_port, liveness_is_slower_than_readiness,
    selectors_match_the_pods, named_ports_exist, container_ports_are_the_image_s,
    memory_is_requested_in_full, images_are_fixed, pod_is_restricted, user_is_the_image_s,
    service_links_are_off, grace_covers_the_drain, rollout_keeps_capacity,
    grpc_clients_find_every_pod, settings_come_from_the_environment,
    metrics_listen_outside_of_loopback, image_starts_the_server,
]


# ---------------------------------------------------------------- breaking the rules

CONTAINER = ("spec", "template", "spec", "containers", 0)
POD = ("spec", "template", "spec")


def at(kind, *path, value=None, index=0):
    """A mutation: sets what the path of a manifest leads to, or removes it."""
    def mutate(world):
        node = world.of_kind(kind)[index]
        for step in path[:-1]:
            node = node[step]
        if value is None:
            del node[path[-1]]
        else:
            node[path[-1]] = value
    return mutate


def container(*path, value=None):
    return at("Deployment", *CONTAINER, *path, value=value)


def pod(*path, value=None):
    return at("Deployment", *POD, *path, value=value)


def setting(name, value):
    def mutate(world):
        entries = world.container["env"]
        entries[:] = [entry for entry in entries if entry["name"] != name]
        entries.append({"name": name, "value": value})
    return mutate


def image(old, new):
    def mutate(world):
        assert old in world.containerfile, old
        world.containerfile = world.containerfile.replace(old, new)
    return mutate


MUTATIONS = [
    (probes_ask_different_services, container("readinessProbe")),
    (probes_ask_different_services, container("startupProbe", "grpc", "service", value="")),
    (probes_ask_different_services,
     container("livenessProbe", "grpc", "service", value=READY_SERVICE)),
    (probes_ask_different_services, container("livenessProbe", value={"tcpSocket": {"port": 8500}})),
    (probes_reach_the_grpc_port, container("livenessProbe", "grpc", "port", value=9400)),
    (probes_reach_the_grpc_port, setting("FLASH_LISTEN", "127.0.0.1:8500")),
    (liveness_is_slower_than_readiness, container("livenessProbe", "failureThreshold", value=1)),
    (liveness_is_slower_than_readiness, container("startupProbe", "failureThreshold", value=30)),
    (liveness_is_slower_than_readiness, container("startupProbe", "periodSeconds", value=10)),
    (selectors_match_the_pods,
     at("Service", "spec", "selector", value={"app.kubernetes.io/name": "flash"}, index=1)),
    (selectors_match_the_pods, at("Service", "spec", "selector")),
    (selectors_match_the_pods, at("Deployment", "spec", "selector", "matchLabels",
                                  value={"app": "flash-server"})),
    (named_ports_exist, at("Service", "spec", "ports", 0, "targetPort", value="http")),
    (named_ports_exist, container("ports", 1, "name", value="prometheus")),
    (container_ports_are_the_image_s, image("EXPOSE 8500 9400", "EXPOSE 8500")),
    (container_ports_are_the_image_s, container("ports", 0, "containerPort", value=50051)),
    (memory_is_requested_in_full, container("resources", "limits", "memory", value="4Gi")),
    (memory_is_requested_in_full, container("resources", "requests", "memory")),
    (memory_is_requested_in_full, container("resources", "limits", "cpu")),
    (images_are_fixed, container("image", value="flash-server:latest")),
    (images_are_fixed, container("image", value="images.example.org:5000/flash-server")),
    (images_are_fixed, image("BASE=debian:bookworm-slim", "BASE=debian")),
    (pod_is_restricted, pod("securityContext", "runAsNonRoot")),
    (pod_is_restricted, pod("securityContext", "seccompProfile")),
    (pod_is_restricted, pod("hostNetwork", value=True)),
    (pod_is_restricted, pod("automountServiceAccountToken")),
    (pod_is_restricted, container("securityContext", "allowPrivilegeEscalation")),
    (pod_is_restricted, container("securityContext", "readOnlyRootFilesystem")),
    (pod_is_restricted, container("securityContext", "capabilities", "add", value=["NET_ADMIN"])),
    (pod_is_restricted, container("securityContext", "privileged", value=True)),
    (pod_is_restricted, container("securityContext", "runAsUser", value=1000)),
    (pod_is_restricted, container("ports", 0, "hostPort", value=8500)),
    (pod_is_restricted, pod("initContainers", value=[{"name": "fetch", "image": "fetch:1"}])),
    (user_is_the_image_s, pod("securityContext", "runAsUser", value=1000)),
    (user_is_the_image_s, image("USER 65532:65532", "USER nobody")),
    (service_links_are_off, pod("enableServiceLinks")),
    (grace_covers_the_drain, pod("terminationGracePeriodSeconds", value=35)),
    (grace_covers_the_drain, pod("terminationGracePeriodSeconds")),
    (grace_covers_the_drain, container("lifecycle")),
    (grace_covers_the_drain, setting("FLASH_DRAIN_TIMEOUT", "55s")),
    (grace_covers_the_drain, setting("FLASH_DRAIN_TIMEOUT", "1m")),
    (grace_covers_the_drain,
     container("lifecycle", "preStop", value={"exec": {"command": ["sleep", "5"]}})),
    (rollout_keeps_capacity,
     at("Deployment", "spec", "strategy", "rollingUpdate", "maxUnavailable", value=1)),
    (rollout_keeps_capacity, at("Deployment", "spec", "replicas", value=1)),
    (grpc_clients_find_every_pod, at("Service", "spec", "clusterIP")),
    (grpc_clients_find_every_pod, at("Service", "spec", "publishNotReadyAddresses", value=True)),
    (grpc_clients_find_every_pod, at("Service", "spec", "ports", 0, "appProtocol", index=1)),
    (settings_come_from_the_environment, container("command")),
    (settings_come_from_the_environment, container("args", value=["--listen=0.0.0.0:1"])),
    (settings_come_from_the_environment, setting("FLASH_MODEL", "")),
    (settings_come_from_the_environment, setting("FLASH_SLOTS", 8)),
    (settings_come_from_the_environment, setting("SLOTS", "8")),
    (metrics_listen_outside_of_loopback, setting("FLASH_METRICS_LISTEN", "127.0.0.1:9400")),
    (image_starts_the_server, image("--listen=0.0.0.0:8500", "--listen=127.0.0.1:8500")),
    (image_starts_the_server, image("/build/bin/flash-loadtest", "")),
    (image_starts_the_server, image("COPY deploy/models/demo/", "COPY deploy/models/")),
    (image_starts_the_server, image("libprotobuf32", "libprotobuf-dev")),
]


class RulesTest(unittest.TestCase):
    def test_what_is_shipped_keeps_every_rule(self):
        world = load_world()
        for rule in RULES:
            with self.subTest(rule.__name__):
                self.assertEqual([], list(rule(world)))

    def test_each_rule_notices_when_it_is_broken(self):
        for number, (rule, mutate) in enumerate(MUTATIONS):
            with self.subTest(rule=rule.__name__, number=number):
                world = copy.deepcopy(load_world())
                mutate(world)
                self.assertNotEqual([], list(rule(world)))

    def test_each_rule_is_broken_at_least_once(self):
        self.assertEqual(set(RULES), {rule for rule, _ in MUTATIONS})


def patched(base, patch):
    """`base` with what a strategic merge patch sets; lists are those of things with a name."""
    if isinstance(patch, dict):
        both = dict(base or {})
        for key, value in patch.items():
            both[key] = patched(both.get(key), value)
        return both
    if isinstance(patch, list):
        both = {entry["name"]: entry for entry in base or []}
        for entry in patch:
            both[entry["name"]] = patched(both.get(entry["name"]), entry)
        return list(both.values())
    return patch


def load_world_of_cards():
    world = load_world()
    patch = yaml.safe_load(read(os.path.join(CARDS, "card.yaml")))
    assert patch["metadata"]["name"] == world.deployment["metadata"]["name"]
    world.documents[world.documents.index(world.deployment)] = patched(world.deployment, patch)
    return world


class CardsTest(unittest.TestCase):
    def test_keeps_every_rule_but_that_of_spare_capacity(self):
        world = load_world_of_cards()
        self.assertEqual(1, len(world.pod["containers"]), "the patch names another container")
        for rule in RULES:
            with self.subTest(rule.__name__):
                wrong = list(rule(world))
                self.assertEqual(rule is rollout_keeps_capacity, bool(wrong), wrong)

    def test_each_pod_has_one_card_and_fails_without(self):
        world = load_world_of_cards()
        for kind in ("requests", "limits"):
            self.assertEqual("1", world.container["resources"][kind]["nvidia.com/gpu"])
        self.assertEqual("cuda", world.environment["FLASH_DEVICE"])

    def test_waits_for_no_card_that_is_not_there(self):
        update = load_world_of_cards().deployment["spec"]["strategy"]["rollingUpdate"]
        self.assertEqual({"maxSurge": 0, "maxUnavailable": 1}, update)

    def test_kustomization_stands_on_the_other(self):
        overlay = yaml.safe_load(read(os.path.join(CARDS, "kustomization.yaml")))
        self.assertEqual(["../kubernetes"], overlay["resources"])
        self.assertEqual([{"path": "card.yaml"}], overlay["patches"])


class KustomizationTest(unittest.TestCase):
    def test_names_every_manifest(self):
        files = {name for name in os.listdir(MANIFESTS) if name.endswith(".yaml")}
        self.assertEqual(files - {"kustomization.yaml"}, set(kustomization()["resources"]))

    def test_image_is_the_deployment_s(self):
        images = [f"{entry['name']}:{entry['newTag']}" for entry in kustomization()["images"]]
        self.assertEqual(images, [load_world().container["image"]])

    def test_kubectl_renders_the_same(self):
        if shutil.which("kubectl") is None:
            self.skipTest("kubectl is not installed")
        done = subprocess.run(["kubectl", "kustomize", MANIFESTS], capture_output=True, text=True,
                              check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        by_name = lambda document: (document["kind"], document["metadata"]["name"])
        self.assertEqual(sorted(yaml.safe_load_all(done.stdout), key=by_name),
                         sorted(load_world().documents, key=by_name))


if __name__ == "__main__":
    unittest.main()
