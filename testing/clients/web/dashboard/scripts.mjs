// What the tracker serves is what the repository has: spaces and comments apart, scripts have the same syntax tree.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { parse } from 'acorn'

const folder = new URL('../../../../edge/admin/assets/', import.meta.url)

/** The syntax tree of a module, without positions. */
const tree = text => JSON.stringify(parse(text, { ecmaVersion: 'latest', sourceType: 'module' }),
  (key, value) => ['start', 'end'].includes(key) ? undefined : typeof value === 'bigint' || value instanceof RegExp ? String(value) : value)

export default async function ({ url }) {
  const names = readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.js'))
  assert.ok(names.length > 15, String(names))
  for (const name of names) {
    const text = await (await fetch(url + name)).text()
    const file = readFileSync(new URL(name, folder), 'utf8')
    assert.equal(tree(text), tree(file), name)
    if (!name.startsWith('vendor')) assert.ok(text.length < file.length * 0.9, name)
  }
}
