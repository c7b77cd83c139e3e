// The API: requests with the session's cookie and the header that changes need.

export class Problem extends Error {
  constructor (status, text) {
    super(text)
    this.status = status
  }
}

async function send (method, path, body) {
  const headers = { 'X-Tidegate': '1' }
  const isText = typeof body === 'string' || body instanceof Blob
  if (body !== undefined) headers['Content-Type'] = isText ? 'text/plain' : 'application/json'
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined || isText ? body : JSON.stringify(body)
  }).catch(() => { throw new Problem(0, 'No response from tidegate. Is it running?') })
  const text = await answer.text()
  const data = text && answer.headers.get('Content-Type')?.includes('json') ? JSON.parse(text) : text
  if (!answer.ok) {
    if (answer.status === 401) dispatchEvent(new Event('signed-out'))
    throw new Problem(answer.status, data?.detail ?? `${answer.status} ${answer.statusText}`)
  }
  return data
}

const prefix = '/api/v1'
export const api = {
  get: path => send('GET', prefix + path),
  post: (path, body) => send('POST', prefix + path, body),
  put: (path, body) => send('PUT', prefix + path, body),
  patch: (path, body) => send('PATCH', prefix + path, body),
  delete: (path, body) => send('DELETE', prefix + path, body)
}

export const session = {
  current: () => send('GET', '/session'),
  open: token => send('POST', '/session', { token }),
  close: () => send('DELETE', '/session')
}

/** Follows an event stream: calls `handle` with name and data of each event. Returns a function that ends it. */
export function follow (path, names, handle, connected = () => {}) {
  const source = new EventSource(prefix + path)
  for (const name of names) source.addEventListener(name, event => handle(name, JSON.parse(event.data)))
  source.onopen = () => connected(true)
  source.onerror = () => {
    connected(false)
    // The browser reconnects unless the stream was refused: then the session may have ended.
    if (source.readyState === EventSource.CLOSED) session.current().then(known => known || dispatchEvent(new Event('signed-out')), () => {})
  }
  return () => source.close()
}
