"""Currencies as people name them: codes, signs, words. No rates: euros are no dollars, and say so.

A name that is missing here reads as a plain word, and the number beside it as one without a unit. So the list is wide:
the codes of ISO 4217 in use, the usual signs, and the words of the larger currencies.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["currency_names"]

_CODES = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP
CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD
IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR
MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP
SLE SOS SRD SSP STN SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER
ZAR ZMW ZWG BTC ETH
"""

_LOWER = "eur usd gbp jpy chf cny inr aud cad nzd sek nok dkk pln czk huf brl mxn krw hkd sgd"
"""Codes that are read in small letters too; others are English words then: all, cup, pen, top, try."""

_DOLLARS = "USD AUD CAD NZD HKD SGD TWD"
_SHARED = {
    "€": "EUR",
    "$": f"{_DOLLARS} MXN ARS CLP COP",
    "£": "GBP EGP",
    "¥": "JPY CNY",
    "₹": "INR",
    "₩": "KRW",
    "₽": "RUB",
    "₺": "TRY",
    "₴": "UAH",
    "₪": "ILS",
    "₫": "VND",
    "฿": "THB",
    "₦": "NGN",
    "₱": "PHP",
    "₿": "BTC",
    "US$": "USD",
    "A$": "AUD",
    "AU$": "AUD",
    "C$": "CAD",
    "CA$": "CAD",
    "NZ$": "NZD",
    "HK$": "HKD",
    "S$": "SGD",
    "R$": "BRL",
    "MX$": "MXN",
    "zł": "PLN",
    "Kč": "CZK",
    "kr": "SEK NOK DKK ISK",
    "Rs": "INR PKR LKR NPR MUR",
    "Rs.": "INR PKR LKR NPR MUR",
    "RMB": "CNY",
}
"""Sign → the currencies that it may mean, the usual one first."""

_WORDS = {
    "euro euros": "EUR",
    "dollar dollars buck bucks": _DOLLARS,
    "pound pounds": "GBP EGP",
    "sterling quid": "GBP",
    "yen": "JPY",
    "yuan renminbi": "CNY",
    "franc francs": "CHF XAF XOF",
    "rupee rupees": "INR PKR LKR NPR MUR",
    "won": "KRW",
    "ruble rubles rouble roubles": "RUB BYN",
    "lira liras": "TRY",
    "hryvnia hryvnias": "UAH",
    "zloty zlotys złoty": "PLN",
    "koruna korunas": "CZK",
    "krona kronor": "SEK ISK",
    "krone kroner": "NOK DKK",
    "forint forints": "HUF",
    "shekel shekels": "ILS",
    "dong": "VND",
    "baht": "THB",
    "naira": "NGN",
    "peso pesos": "MXN ARS CLP COP PHP UYU DOP CUP",
    "reais": "BRL",
    "rand": "ZAR",
    "rupiah": "IDR",
    "ringgit": "MYR",
    "dirham dirhams": "AED MAD",
    "riyal riyals": "SAR QAR YER",
    "dinar dinars": "KWD BHD IQD JOD RSD TND DZD LYD",
    "bitcoin bitcoins": "BTC",
}
_CENTS = {"cent cents": f"EUR {_DOLLARS} ZAR", "eurocent eurocents": "EUR", "penny pence": "GBP", "¢": "USD"}
_PHRASES = {
    "US dollar": "USD",
    "U.S. dollar": "USD",
    "American dollar": "USD",
    "Australian dollar": "AUD",
    "Canadian dollar": "CAD",
    "New Zealand dollar": "NZD",
    "Hong Kong dollar": "HKD",
    "Singapore dollar": "SGD",
    "British pound": "GBP",
    "Swiss franc": "CHF",
    "Indian rupee": "INR",
    "Mexican peso": "MXN",
    "Japanese yen": "JPY",
    "Chinese yuan": "CNY",
}


def currency_names() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(name, codes of the currencies that it may mean, how much of one it is) of every name known."""
    for code in _CODES.split():
        yield code, (code,), "1"
    for code in _LOWER.split():
        yield code, (code.upper(),), "1"
    for sign, codes in _SHARED.items():
        yield sign, tuple(codes.split()), "1"
    for phrase, code in _PHRASES.items():
        yield from ((phrase + end, (code,), "1") for end in ("", "s"))
    for phrase in ("pound sterling", "pounds sterling"):
        yield phrase, ("GBP",), "1"
    for phrase in ("euro cent", "euro cents"):
        yield phrase, ("EUR",), "0.01"
    for share, table in (("1", _WORDS), ("0.01", _CENTS)):
        for words, codes in table.items():
            for word in words.split():
                yield from ((name, tuple(codes.split()), share) for name in {word, word.capitalize(), word.upper()})
