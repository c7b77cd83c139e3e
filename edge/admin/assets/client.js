// The API, as the dashboard uses it: by the session's cookie, with the header that a change needs.

export class Problem extends Error {
  constructor (status, text) {
    super(text)
    this.status = status
  }
}

async function send (method, path, body) {
  const headers = { 'X-Tidegate': '1' }
  if (body !== undefined) headers['Content-Type'] = typeof body === 'string' ? 'text/plain' : 'application/json'
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
  }).catch(() => { throw new Problem(0, 'tidegate does not answer') })
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
  whose: () => send('GET', '/session'),
  open: token => send('POST', '/session', { token }),
  close: () => send('DELETE', '/session')
}

/** Follows a stream: `told` gets name and data of each event. Gives what ends it. */
export function follow (path, names, told, connected = () => {}) {
  const source = new EventSource(prefix + path)
  for (const name of names) source.addEventListener(name, event => told(name, JSON.parse(event.data)))
  source.onopen = () => connected(true)
  source.onerror = () => connected(false)
  return () => source.close()
}
