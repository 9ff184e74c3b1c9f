"""The client of a running job, for other processes.

>>> import moorline as mo
>>> client = mo.client.JobClient("http://127.0.0.1:8090", token="...")
"""

from moorline.http.client import JobClient, QueryClient

__all__ = ["JobClient", "QueryClient"]
