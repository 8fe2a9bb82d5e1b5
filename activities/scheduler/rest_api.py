"""slurmrestd's interface in the version that both sides know: paths, and answers that are no refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from activities.scheduler.rest_client import RestAnswer, RestClient
from activities.scheduler.rest_versions import ApiVersion, newest_known
from activities.scheduler.rest_words import NOTHING_FOUND, raise_for


class RestApi:
    """Asks slurmrestd under the paths of the version that was agreed upon."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._version: ApiVersion | None = None

    @property
    def server_name(self) -> str:
        """For messages."""
        return self._client.server_name

    async def account(self) -> str:
        """Return the Slurm user that the requests are made as; empty when that is not known."""
        return await self._client.account()

    async def version(self) -> ApiVersion:
        """Return the version of the interface that is spoken, agreed upon at the first call."""
        if self._version is None:
            answer = await self._client.send("GET", "/openapi/v3")
            if answer.status != 200:
                raise_for(answer, server=self.server_name, about="asking for the versions of its interface")
            self._version = newest_known(answer.text, self.server_name)
        return self._version

    async def read(self, path: str, *, about: str) -> str:
        """Return what stands under `path`. `about` says for messages what is read."""
        answer = await self._send("GET", f"/slurm/{{version}}{path}")
        raise_for(answer, server=self.server_name, about=about)
        return answer.text

    async def read_much(self, path: str, *, about: str) -> str:
        """The same for an answer of many megabytes: whether it is well is left to the one who parses it."""
        answer = await self._send("GET", f"/slurm/{{version}}{path}")
        if answer.status != 200 or not answer.is_json:
            raise_for(answer, server=self.server_name, about=about)
        return answer.text

    async def read_accounts(self, path: str, *, about: str, query: Mapping[str, str] | None = None) -> str:
        """Return what stands under `path` of slurmdbd's part of the interface. That there is nothing is no error."""
        answer = await self._send("GET", f"/slurmdb/{{version}}{path}", query=query)
        raise_for(answer, server=self.server_name, about=about, passing=NOTHING_FOUND)
        return answer.text

    async def change(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, about: str, passing: int = 0
    ) -> None:
        """Ask for a change. Raises what the answer calls for; `passing` is the number of an error that is none here."""
        answer = await self._send(method, f"/slurm/{{version}}{path}", body)
        raise_for(answer, server=self.server_name, about=about, changes=True, passing=passing)

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> RestAnswer:
        version = await self.version()
        answer = await self._client.send(method, path.format(version=version.name), body=body, query=query)
        if answer.status == 404 and not answer.is_json:
            # slurmrestd was updated, and the version went: agree upon another one at the next call.
            self._version = None
        return answer
