// The session: its cookie alone does not authorize changes, and signing out ends it.

import assert from 'node:assert/strict'

export default async function (dashboard) {
  const { page, url, admin, click } = dashboard
  const { cookies } = await page.send('Network.getCookies', { urls: [url] })
  const [{ name, value, httpOnly, sameSite }] = cookies
  assert.deepEqual({ httpOnly, sameSite }, { httpOnly: true, sameSite: 'Strict' })
  const forged = headers => fetch(`http://${admin}/api/v1/bans/192.0.2.0/24`, { method: 'DELETE', headers: { Cookie: `${name}=${value}`, ...headers } })
  for (const headers of [{}, { Origin: `http://${admin}` }, { 'X-Tidegate': '1' }, { 'X-Tidegate': '1', Origin: 'http://example.org' }]) {
    assert.equal((await forged(headers)).status, 403, JSON.stringify(headers))
  }
  assert.equal((await forged({ 'X-Tidegate': '1', Origin: `http://${admin}` })).status, 204)


  await click('Sign out')
  await page.until('document.querySelector("input[name=token]")', 'the form')
  assert.equal((await fetch(`http://${admin}/api/v1/stats`, { headers: { Cookie: `${name}=${value}` } })).status, 401)
}
