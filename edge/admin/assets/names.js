// @ts-check
// What names in the API's responses mean. The API says it, so that no list of them is kept here.

import { api } from './client.js'

/** @typedef {{ name: string, title: string, text: string }} Named */
/** @typedef {((list: string, name: string) => Named) & { lists: Record<string, Named[]> }} Names */

/** @type {Promise<Names> | undefined} */
let known

/**
 * Resolves to a function of a list and a name in it, e.g. ('drops', 'too_short'), that returns { title, text }.
 * @returns {Promise<Names>}
 */
export async function names() {
  known ??= api.get('/names').then(lists => {
    const maps = Object.fromEntries(
      Object.entries(lists).map(([list, rows]) => [list, new Map(rows.map(row => [row.name, row]))])
    )
    const plain = name => ({ name, title: name.replaceAll('_', ' '), text: '' })
    return Object.assign((list, name) => maps[list]?.get(name) ?? plain(name), { lists })
  })
  // A failure is not kept: the next call asks again.
  known.catch(() => {
    known = undefined
  })
  return known
}
