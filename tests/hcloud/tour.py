"""Hetzner's own Python client against the sandbox: `tour.py NAME` runs the function of that name."""

import os
import sys
import time

from hcloud import APIException, Client
from hcloud.actions.domain import ActionFailedException
from hcloud.images.domain import Image
from hcloud.locations.domain import Location
from hcloud.networks.domain import NetworkRoute, NetworkSubnet
from hcloud.server_types.domain import ServerType

client = Client(
    token=os.environ["HCLOUD_TOKEN"],
    api_endpoint=os.environ["HCLOUD_ENDPOINT"],
    poll_interval=0.02,
)


def equal(got, wanted):
    assert got == wanted, f"{got!r} and not {wanted!r}"


def done(action):
    action.wait_until_finished()
    equal(action.status, "success")


def refused(code, call, *args, **kwargs):
    """The API's error as the library raises it."""
    try:
        call(*args, **kwargs)
    except APIException as error:
        equal(error.code, code)
        return error
    raise AssertionError(f"not refused: {code}")


def becomes(server, status):
    """A shutdown has succeeded when the system was asked for it: the machine takes a while longer."""
    for _ in range(500):
        server.reload()
        if server.status == status:
            return
        time.sleep(0.01)
    raise AssertionError(f"{server.status} and never {status}")


def subnet(ip_range):
    return NetworkSubnet(type="cloud", network_zone="eu-central", ip_range=ip_range)


def create(name, **options):
    created = client.servers.create(
        name, server_type=ServerType("cx23"), image=Image(name="ubuntu-24.04"), **options
    )
    for action in [created.action, *created.next_actions]:
        done(action)
    assert created.root_password
    created.server.reload()
    return created.server


def servers():
    """Created, found, switched off and on, renamed, deleted."""
    before = [server.id for server in client.servers.get_all()]
    server = create("tour", location=Location("nbg1"), labels={"tour": "1"}, user_data="#cloud-config")
    equal((server.status, server.location.name, server.server_type.name), ("running", "nbg1", "cx23"))
    assert server.public_net.ipv4.ip and server.public_net.ipv6.ip
    equal(client.servers.get_by_name("tour").id, server.id)
    equal(client.servers.get_by_id(server.id).labels, {"tour": "1"})
    equal([found.id for found in client.servers.get_all(label_selector="tour=1")], [server.id])
    assert server.id in [found.id for found in client.servers.get_all(status=["running"])]
    equal(client.servers.get_by_name("nobody"), None)

    for command, status in [
        ("power_off", "off"),
        ("power_on", "running"),
        ("reboot", "running"),
        ("reset", "running"),
        ("shutdown", "off"),
    ]:
        done(getattr(server, command)())
        becomes(server, status)
    equal([found.id for found in client.servers.get_all(status=["off"])], [server.id])
    equal(server.update(name="renamed", labels={}).name, "renamed")
    equal(
        [action.command for action in client.servers.actions.get_all(sort="id:asc")],
        ["create_server", "start_server", "stop_server", "start_server", "reboot_server", "reset_server",
         "shutdown_server"],
    )

    done(server.change_protection(delete=True, rebuild=True))
    refused("protected", server.delete)
    done(server.change_protection(delete=False, rebuild=False))
    done(server.delete())
    refused("not_found", client.servers.get_by_id, server.id)
    equal([server.id for server in client.servers.get_all()], before)


def networks():
    """Created with and without subnets, servers attached and detached, routes set, deleted."""
    network = client.networks.create("tour", "10.8.0.0/16", subnets=[subnet("10.8.1.0/24")], labels={"a": "b"})
    equal(client.networks.get_by_name("tour").id, network.id)
    server = create("inside", networks=[network])
    equal([(net.network.id, net.ip) for net in server.private_net], [(network.id, "10.8.1.1")])

    other = client.networks.create("other", "10.10.0.0/16")
    done(other.add_subnet(subnet("10.10.1.0/24")))
    done(server.attach_to_network(other, ip="10.10.1.5"))
    refused("server_already_attached", server.attach_to_network, other)
    done(server.change_alias_ips(other, ["10.10.1.9"]))
    server.reload()
    equal([(net.ip, net.alias_ips) for net in server.private_net], [("10.8.1.1", []), ("10.10.1.5", ["10.10.1.9"])])
    other.reload()
    equal([attached.id for attached in other.servers], [server.id])
    done(server.detach_from_network(other))

    route = NetworkRoute("10.244.1.0/24", "10.10.1.5")
    done(other.add_route(route))
    other.reload()
    equal([(route.destination, route.gateway) for route in other.routes], [("10.244.1.0/24", "10.10.1.5")])
    done(other.delete_route(route))
    done(other.delete_subnet(subnet("10.10.1.0/24")))
    done(other.change_ip_range("10.10.0.0/15"))
    done(other.change_protection(delete=True))
    refused("protected", other.delete)
    done(other.change_protection(delete=False))
    equal(other.update(name="another", labels={"c": "d"}).labels, {"c": "d"})

    done(server.delete())
    assert network.delete() and other.delete()
    refused("not_found", client.networks.get_by_id, network.id)
    equal([network.name for network in client.networks.get_all()], [])


def pages():
    """Lists of more than one page, as the library goes through them."""
    equal(len(client.servers.get_all()), 60)
    page = client.servers.get_list(page=2, per_page=50)
    equal((len(page.servers), page.meta.pagination.total_entries), (10, 60))


def refusals():
    """What the API refuses arrives as the library's exceptions, with the code and the field."""
    worker = client.servers.get_by_name("worker-1")
    error = refused("uniqueness_error", create, "worker-1")
    equal(error.details, {"fields": [{"name": "name", "messages": ["must be unique"]}]})
    error = refused("invalid_input", create, "not a host name")
    equal(error.details["fields"][0]["name"], "name")
    refused("invalid_input", client.networks.create, "public", "8.8.0.0/16")
    refused("not_found", client.servers.get_by_id, 1)
    stranger = Client(token="x" * 64, api_endpoint=os.environ["HCLOUD_ENDPOINT"])
    refused("unauthorized", stranger.servers.get_all)
    network = client.networks.create("full", "10.7.0.0/16")
    refused("no_subnet_available", worker.attach_to_network, network)


def locked():
    """While an action runs, the next one is refused; the sandbox holds them all."""
    worker = client.servers.get_by_name("worker-1")
    action = worker.power_off()
    equal(action.status, "running")
    error = refused("locked", worker.power_on)
    assert "locked" in error.message, error.message


def failing():
    """An action that fails is an exception of its own."""
    action = client.servers.get_by_name("worker-1").power_off()
    try:
        action.wait_until_finished()
    except ActionFailedException as failed:
        equal(failed.action.error["code"], "timeout")
        return
    raise AssertionError("it did not fail")


globals()[sys.argv[1]]()
